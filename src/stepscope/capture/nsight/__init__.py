"""NVTX ranges in the observed process, and Nsight Systems as the profiler around it."""
