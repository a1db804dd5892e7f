"""Bounded reading of untrusted files, and atomic writing."""
