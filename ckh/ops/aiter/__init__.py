"""AITER: what the operations of its kernels share, which are devices, tuned tables, problem files and exports."""
