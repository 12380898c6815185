"""Comparisons, budgets, benches and sweeps as text and pages."""
