"""Measurements: their schema, the journal, readers of other formats, and the Parquet dataset."""
