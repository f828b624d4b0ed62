"""k-fold composition with hidden permutations."""
