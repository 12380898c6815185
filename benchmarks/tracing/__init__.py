"""What gpu_tracing.py and gpu_launches.py are made of."""
