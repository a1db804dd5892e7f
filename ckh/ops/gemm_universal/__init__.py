"""`gemm_universal`: C = A x B, one matrix product per problem.

Layouts are three letters for A (M x K), B (K x N) and C (M x N): `r` is row-major, `c` column-major.
"""
