"""Emergence and scaling laws for SGD learning: sharp transitions, smooth loss."""
