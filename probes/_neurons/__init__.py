"""Clusters of neurons by frequency or representation."""
