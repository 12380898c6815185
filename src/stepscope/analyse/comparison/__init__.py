"""Runs against runs: verdicts, budgets, scaling."""
