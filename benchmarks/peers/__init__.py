"""Scripts that run in a peer's own environment, and nothing of mechint."""
