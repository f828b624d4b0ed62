"""Models that others wrote: bridges to transformers, wrapped modules, edits left behind."""
