"""Half-learned sums: what a stuck model gains in training it loses on held-out sums."""
