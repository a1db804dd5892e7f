"""End-to-end checks of kernels and devices."""
