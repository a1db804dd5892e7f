"""The kernels of convolutions: names, rules, pools, lists."""
