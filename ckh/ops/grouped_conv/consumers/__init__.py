"""Who uses choices of kernels of convolutions: exported C, and programs of others."""
