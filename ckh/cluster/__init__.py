"""A cluster of machines: a Dask scheduler with its workers, and calls executed there.

`ckh` has no scheduler of its own. `connection` connects to the cluster at an address, and `calls` runs functions on its
workers: both are used by the client, the process of the command. `on_dask` runs in the scheduler and in its workers.
"""
