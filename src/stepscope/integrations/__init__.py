"""Thin front ends over ``session`` for programs that have their own: pytest and notebooks."""
