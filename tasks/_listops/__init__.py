"""Nested ListOps expressions and their triplets."""
