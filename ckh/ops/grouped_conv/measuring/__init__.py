"""How kernels of convolutions are computed, built and measured."""
