"""Frequencies of a cyclic group in a model."""
