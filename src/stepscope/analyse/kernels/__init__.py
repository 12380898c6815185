"""What single kernels and operators are: categories, FLOPs, peaks, occupancy."""
