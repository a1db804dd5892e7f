"""Code generators: each turns one kernel of the table into the source of one translation unit for one kind of device."""
