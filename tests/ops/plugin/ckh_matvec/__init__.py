"""An operation that a package of its own has: y = A x on the CPU."""
