"""Search strategies that find a fast configuration with few measurements."""
