"""Clock and pizza as one family: whether the sum of one function of both operands is enough."""
