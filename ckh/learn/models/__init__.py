"""Model directories: loading models, and predicting with them."""
