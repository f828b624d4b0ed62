"""Irreducible representations of a group in a model."""
