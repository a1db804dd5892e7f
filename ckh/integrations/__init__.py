"""ckh inside other programs written in Python."""
