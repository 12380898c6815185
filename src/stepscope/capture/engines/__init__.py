"""Inside engines: thin adapters that say what a stage, a step, a forward and a request are there."""
