"""Finished results to text: terminal, JSON, Markdown, HTML. No arithmetic beyond formatting."""
