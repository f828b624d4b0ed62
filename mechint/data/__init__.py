"""Text as tokens on disk: files and Hugging Face data sets, read through memory maps."""

from mechint.data.texts import TextTokens, from_dataset, from_file

__all__ = ["TextTokens", "from_dataset", "from_file"]
