"""Where data are that the repository does not have: beside the checkout in `../shared`, or where `CKH_SHARED` says."""

from __future__ import annotations

import os
from pathlib import Path

SHARED = Path(os.environ.get("CKH_SHARED", Path(__file__).resolve().parents[2] / "shared"))
DATA = SHARED / "data"
