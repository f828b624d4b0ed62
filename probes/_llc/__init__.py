"""The local learning coefficient, by chains of stochastic gradient Langevin dynamics."""
