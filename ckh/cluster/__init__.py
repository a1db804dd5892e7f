"""A cluster of machines: a Dask scheduler with its workers, and calls that run there.

`ckh` brings no scheduler of its own. `connection` finds the cluster at an address, and `calls` has functions run on its
workers: both are for the client, which the command runs in. What runs in a worker's process is in `on_worker`, what
runs in the scheduler's in `on_scheduler`.
"""
