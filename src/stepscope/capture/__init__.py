"""Touches the live process: clock, observation, profiler, NVTX, nsys, environment."""
