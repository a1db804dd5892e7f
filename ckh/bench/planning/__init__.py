"""Choice and order of kernels and problems in a run."""
