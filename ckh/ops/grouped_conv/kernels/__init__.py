"""Kernels of convolutions: names, rules, pools and lists."""
