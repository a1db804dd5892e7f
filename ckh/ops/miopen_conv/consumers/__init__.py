"""MIOpen's user find database, and exported C."""
