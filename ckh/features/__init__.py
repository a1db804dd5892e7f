"""Features, each declared once with its formula."""
