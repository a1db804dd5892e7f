"""An AMD GPU that is emulated: carries out compiled kernels on the CPU, to tell whether they compute right numbers."""
