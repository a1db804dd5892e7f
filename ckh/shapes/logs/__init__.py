"""Shapes from logs and profiles, and reasons of missed lookups."""
