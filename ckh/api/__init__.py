"""The Python API beyond single answers: problems, measurements, training, evaluation and tuning as functions."""
