"""Clock or pizza: how a model of modular addition combines its two operands."""
