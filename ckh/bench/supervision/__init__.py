"""What runs in the process of `ckh bench`: the sweep, its workers, and the journal's rows."""
