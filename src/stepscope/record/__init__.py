"""The only place that knows file formats."""
