"""Getting into processes that somebody else starts: through environment and import path, no file edited."""
