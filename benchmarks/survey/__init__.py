"""Tiny instances of every diffusers pipeline class, run plainly and observed."""
