"""Joint training changes whether a model learns its sums, not when."""
