"""Circuits and composition of attention heads, read off their weights."""
