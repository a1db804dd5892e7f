"""Machine code analysis of kernels for AMD Instinct GPUs: loops, cost of an iteration, and dependences of waits."""
