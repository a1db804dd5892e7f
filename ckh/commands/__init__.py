"""Commands: parse options, call the core, print a table or JSON."""
