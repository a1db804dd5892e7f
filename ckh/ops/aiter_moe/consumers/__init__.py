"""Tuned tables for AITER, and exported C."""
