"""Choosing the measurements that are most informative."""
