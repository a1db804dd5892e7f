"""The rules checked one kernel at a time: the reference for the columnar rules."""
