"""Entry point of `python -m ckh`."""

from ckh.entry import main

main()
