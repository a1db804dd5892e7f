"""What a person reads: lines on stderr, sentences, tables."""
