"""The geometry of the token embedding."""
