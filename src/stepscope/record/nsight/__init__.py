"""Nsight Systems' SQLite export into columns."""
