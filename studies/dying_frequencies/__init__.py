"""Frequencies that rise before sums generalize and die after: scaffold or rival."""
