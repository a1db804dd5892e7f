"""`python -m ckh` is `ckh`."""

from ckh.cli import main

main()
