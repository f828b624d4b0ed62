"""The study of model capacity, interference and the retention of rare tasks."""
