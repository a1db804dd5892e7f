"""Print the oldest versions supported by the installed ckh, as constraints for `pip install -c`."""

from __future__ import annotations

import re
import sys
from importlib.metadata import requires

OF_USERS = re.compile(r"([\w-]+).*?>=([\d.]+)[^;]*(?:; extra == [\"'](?:cluster|report)[\"'])?")

if __name__ == "__main__":
    found = filter(None, map(OF_USERS.fullmatch, requires("ckh") or ()))
    sys.stdout.write("".join(f"{item[1]}=={item[2]}\n" for item in found))
