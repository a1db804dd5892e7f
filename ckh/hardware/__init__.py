"""Descriptions of architectures, GPUs and the processor."""
