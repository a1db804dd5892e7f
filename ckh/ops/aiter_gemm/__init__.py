"""`aiter_gemm`: which kernel of Composable Kernel AITER should run for a quantised matrix product."""
