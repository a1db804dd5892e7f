"""Kernels: their parameters, names, tables, pools and validity."""
