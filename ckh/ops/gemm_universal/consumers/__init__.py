"""Who uses choices of kernels of matrix products: exported C, and programs of others."""
