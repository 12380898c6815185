"""The folder into which observed engine processes write: the names that its writers and readers share."""

from __future__ import annotations

CALLS, CLIENTS, PROCESSES, RUNNING = "calls", "clients", "processes", "running"
"""Folders: pipeline calls, what clients saw of them, hook points by process, the request a process is at.

That ``PROCESSES`` exists says that a Python process was observed, whether or not it imported an engine.
"""
LOG = "stepscope.log"
"""A line for each fault of ours, with the number of the process."""
RAW = "raw"
"""The folder of the profiler's exports that are still to be cut; a record has its first path."""
CONTROL = "control.json"
"""Which requests are to be traced from now on; not there: none."""
