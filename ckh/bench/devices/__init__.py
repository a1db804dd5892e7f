"""Devices that kernels are built for and run on: host, hip and emulated."""
