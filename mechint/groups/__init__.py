"""Finite groups, their representations, and named groups."""
