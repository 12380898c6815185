"""A raw profiler export into the trace file that a run leaves."""
