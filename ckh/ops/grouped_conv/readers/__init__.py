"""Readers of files of measured convolutions, and writers of the same formats."""
