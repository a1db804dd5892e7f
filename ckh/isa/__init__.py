"""Machine code of kernels for AMD's Instinct GPUs: its loops, what a trip costs, and what waits for what."""
