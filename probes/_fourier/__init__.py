"""Fourier analysis of embedding, neurons, residual stream and logits."""
