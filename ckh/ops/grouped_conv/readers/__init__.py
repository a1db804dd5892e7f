"""Readers and writers of measurement files specific to convolutions."""
