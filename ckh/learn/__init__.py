"""Learning: splits, training, the model directory and the predictor."""
