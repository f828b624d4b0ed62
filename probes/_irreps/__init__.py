"""Fourier analysis on any finite group."""
