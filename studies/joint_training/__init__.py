"""Joint training: hard operations learned beside easy ones."""
