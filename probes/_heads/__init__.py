"""Heads that move the answer of pairs of prompts: `mechint.probes._heads.probe`."""
