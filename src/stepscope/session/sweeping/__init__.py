"""Sweeps: their points, workers and executors."""
