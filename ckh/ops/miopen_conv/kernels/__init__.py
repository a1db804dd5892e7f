"""MIOpen's solvers, and the candidates for a problem."""
