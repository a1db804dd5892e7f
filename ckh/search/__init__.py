"""Search: strategies that find a fast configuration in few measurements."""
