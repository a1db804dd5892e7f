"""What runs in the isolated worker: memory, launches, timing and verification of one kernel at a time."""
