"""PyTorch Profiler's JSON into columns."""
