"""Checks of kernels and of a device from end to end."""
