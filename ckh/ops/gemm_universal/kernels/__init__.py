"""The kernels of matrix products: names, rules, pools, lists."""
