"""ckh: finds the fastest Composable Kernel Tile kernel for a GEMM or grouped-convolution problem."""

__version__ = "0.1.0"
