"""Readers of MIOpen's find databases."""
