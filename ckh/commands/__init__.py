"""Commands: options in, a core call, a table or JSON out."""
