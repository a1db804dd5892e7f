"""Operations: for each, its problems, kernels, rules, pool, features, named sets and slices."""
