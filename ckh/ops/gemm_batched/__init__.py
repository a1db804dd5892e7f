"""`gemm_batched`: a batch of equal matrix products, CK Tile's `BatchedGemmKernel`.

Kernels, rules and emitted sources are those of `gemm_universal`; this package has what differs.
"""
