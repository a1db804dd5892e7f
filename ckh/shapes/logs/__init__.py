"""Logs and profiles: lines that state a shape, and why a lookup missed."""
