"""`gemm_streamk`: matrix products whose blocks share the steps along K of tiles, CK Tile's `StreamKKernel`.

What is not stated here is that of `gemm_universal`.
"""
