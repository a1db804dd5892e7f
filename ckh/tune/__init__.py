"""`ckh tune`: from the shapes of a model to a table that its server uses, by the commands that exist."""
