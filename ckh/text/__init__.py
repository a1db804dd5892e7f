"""User-facing text: lines on stderr, sentences, tables."""
