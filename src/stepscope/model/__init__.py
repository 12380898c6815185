"""The nouns: frozen dataclasses and columns. No I/O, no torch, imported by every other layer."""
