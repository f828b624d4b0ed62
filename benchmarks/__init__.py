"""What is timed, against which peer, with which script: `python -m benchmarks`."""
