"""Norm ratios: how much attention and MLP layers change what passes through them."""
