"""Matrix products with further tensors in their epilogue: bias, residual, scale, and an activation.

The operation is `gemm_universal` with another epilogue: what is not stated here is that of `gemm_universal`.
"""
