"""The `ckh bench` process: the sweep, its workers, and the journal's rows."""
