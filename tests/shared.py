"""Location of data that are not in the repository: `../shared` beside the checkout, or `CKH_SHARED`."""

from __future__ import annotations

import os
from pathlib import Path

SHARED = Path(os.environ.get("CKH_SHARED", Path(__file__).resolve().parents[2] / "shared"))
DATA = SHARED / "data"
