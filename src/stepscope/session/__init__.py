"""The wiring, in one place."""
