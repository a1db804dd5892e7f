"""The process of `ckh bench`: the sweep, its workers, and the journal's rows."""
