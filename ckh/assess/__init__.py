"""Assessment: metrics, slices, baselines, the oracle and comparisons."""
