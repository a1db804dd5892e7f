"""An operation in a separate package: y = A x on the CPU."""
