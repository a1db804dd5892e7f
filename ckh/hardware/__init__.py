"""What an architecture and a machine are."""
