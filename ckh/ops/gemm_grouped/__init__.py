"""`gemm_grouped`: matrix products that share N and K in one launch, CK Tile's `GroupedGemmKernel`.

Kernels, rules and emitted sources are those of `gemm_universal`; this package has what differs.
"""
