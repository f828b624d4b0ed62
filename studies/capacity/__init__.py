"""Reasons why larger models learn more: regressions and language models that compete for width."""
