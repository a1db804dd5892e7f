"""ckh inside other programs, where they are Python."""
