"""The rules of kernels as they were before columns: one kernel at a time. What columns must agree with."""
