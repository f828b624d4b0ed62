"""The study of k-fold composition."""
