"""Distributed alignment search."""
