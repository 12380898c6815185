"""From a trace's columns to what a rank did: attribution, GPU time, idle causes, steps."""
