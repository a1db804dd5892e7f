"""Training: data, splits, fits, and the model directory that is written."""
