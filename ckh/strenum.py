"""StrEnum for Python 3.10, whose standard library lacks it."""

from __future__ import annotations

import sys

if sys.version_info >= (3, 11):
    from enum import StrEnum
else:
    from enum import Enum

    class StrEnum(str, Enum):
        """An enumeration whose members are strings."""

        def __str__(self) -> str:
            return str(self.value)


__all__ = ["StrEnum"]
