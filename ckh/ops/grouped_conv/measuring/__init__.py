"""Computing, building and measuring kernels of convolutions."""
