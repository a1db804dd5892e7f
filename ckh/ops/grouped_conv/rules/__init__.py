"""Rule sets: named sets of kernels, made from AMD's curated tables, for a direction, dtype and architecture."""
