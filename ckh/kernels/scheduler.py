"""The schedulers of CK Tile's pipelines."""

from __future__ import annotations

from ckh.strenum import StrEnum


class Scheduler(StrEnum):
    """Scheduling of the waves of a block."""

    INTRAWAVE = "intrawave"
    INTERWAVE = "interwave"
