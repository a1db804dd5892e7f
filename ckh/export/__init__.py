"""Export of models: as C that needs neither Python nor LightGBM, or as plain text for LightGBM's C interface."""
