"""Pure functions: model in, frozen result out. No printing, no files, no torch."""
