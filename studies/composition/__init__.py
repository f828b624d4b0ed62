"""Learning compositional functions with transformers: direct labels, mixtures and curricula."""
