"""Readers of files of measurements that are of matrix products alone."""
