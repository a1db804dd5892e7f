"""Search: strategies that find a fast configuration in few measurements, and their replay on recorded measurements."""
