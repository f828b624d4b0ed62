"""`make gpu`: everything that needs a GPU, in parts by worth, each with its result on disk."""
