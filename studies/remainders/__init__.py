"""Remainders by all primes below p, learned at once."""
