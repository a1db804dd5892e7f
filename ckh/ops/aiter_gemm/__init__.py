"""`aiter_gemm`: Composable Kernel's fastest kernel for a quantised matrix product in AITER."""
