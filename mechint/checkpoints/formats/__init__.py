"""One file per checkpoint format: how it is recognized and read."""
