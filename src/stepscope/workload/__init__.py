"""What is run: load a pipeline, presets, call arguments."""
