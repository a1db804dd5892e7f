"""Matrix products whose B is stored in the order in which the waves of a block read it, shuffled once beforehand.

The operation is `gemm_universal` with another operand B and one pipeline: what is not stated here is that of
`gemm_universal`.
"""
