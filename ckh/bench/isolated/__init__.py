"""The isolated worker: memory, launches, timing and verification, one kernel at a time."""
