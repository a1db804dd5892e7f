"""An AMD GPU that is emulated: carries out compiled kernels on the CPU, to check that they compute right numbers."""
