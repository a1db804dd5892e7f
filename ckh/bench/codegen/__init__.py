"""Code generators: each turns one kernel of the table into one translation unit for one kind of device."""
