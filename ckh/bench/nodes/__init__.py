"""A run of `ckh bench` on the nodes of a cluster."""
