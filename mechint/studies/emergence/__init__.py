"""The study of emergence and scaling laws of SGD."""
