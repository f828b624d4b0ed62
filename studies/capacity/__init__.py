"""Why larger models learn more: regressions and language models that compete for width."""
