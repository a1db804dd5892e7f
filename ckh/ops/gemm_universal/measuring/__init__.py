"""Computing, building and measuring kernels of matrix products."""
