"""The schedulers of CK Tile's pipelines."""

from __future__ import annotations

from ckh.strenum import StrEnum


class Scheduler(StrEnum):
    """How the waves of a block take turns."""

    INTRAWAVE = "intrawave"
    INTERWAVE = "interwave"
