"""The study of remainders by all primes at once."""
