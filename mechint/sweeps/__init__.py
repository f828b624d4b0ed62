"""Sweeps: many runs from one plan, executed here or elsewhere, that can stop and go on."""
