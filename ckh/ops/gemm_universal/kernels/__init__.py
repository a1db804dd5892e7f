"""Kernels of matrix products: names, rules, pools and lists."""
