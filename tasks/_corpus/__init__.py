"""A language-modeling stream into which token tasks are injected."""
