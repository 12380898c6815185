"""A report as terminal text, Markdown, CSV, JSON and HTML."""
