"""`miopen_conv`: which of MIOpen's convolution solvers is fastest for a problem, learned from AMD's find databases."""
