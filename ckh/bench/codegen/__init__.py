"""Code generators: each turns one kernel into one translation unit for one kind of device."""
