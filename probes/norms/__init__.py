"""Norm ratios: how much attention and feed-forward layers change what passes through them."""
