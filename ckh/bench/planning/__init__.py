"""How kernels and problems are chosen for a run, and in which order they are measured."""
