"""Measurements: schema, journal, readers of other formats, and the Parquet dataset."""
