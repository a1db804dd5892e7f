"""`python -m ckh` is `ckh`."""

from ckh.entry import main

main()
