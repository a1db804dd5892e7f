"""Training: data, splits, fits, and saving the model directory."""
