"""MIOpen's solvers, and which of them are candidates for a problem."""
