"""Times of mechint beside those of its peers: `python -m benchmarks`."""
