"""A command under Nsight Systems: planned, run, explained."""
