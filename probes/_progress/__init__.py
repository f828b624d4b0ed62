"""Progress measures of grokking."""
