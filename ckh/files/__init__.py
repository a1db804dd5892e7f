"""Reading files of strangers with bounds, and writing files whole."""
