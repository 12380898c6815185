"""Commands that run an engine, and what their processes recorded."""
