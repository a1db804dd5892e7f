"""The version of ckh."""

__version__ = "0.1.0"
