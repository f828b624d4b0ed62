"""Families of explanations: programs that a model may run, proposed from its activations."""
