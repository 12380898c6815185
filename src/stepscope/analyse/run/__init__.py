"""From a recording or a dump to one run's times: stages, steps, and whether they agree."""
