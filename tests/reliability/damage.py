"""Damages cached files and repeats queries, in a separate process, since C code reading them may crash it.

    python tests/reliability/damage.py forests|answers|probes [--count 1000] [--seed 0]

After each damage `ckh predict` must give the same answer, or for measured times the answer from before they were
measured; forests and prepared answers must be rebuilt. The exit code is 1 at the first different answer.
"""

from __future__ import annotations

# ruff: noqa: T201 - a script
import argparse
import contextlib
import io
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parents[2]))

if TYPE_CHECKING:
    import random

_PREDICT = ["predict", "--n", "16", "--c", "256", "--top", "7"]
_KINDS = {"forests": "cache/forests/*.bin", "answers": "cache/answers/*", "probes": "user/probes/*.jsonl"}


def main() -> int:
    """Run the script."""
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=sorted(_KINDS))
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        os.environ |= {
            "CKH_MODELS": f"{home}/models",
            "CKH_DATA_DIR": f"{home}/user",
            "CKH_CACHE_DIR": f"{home}/cache",
            "CKH_QUICK": "1" if args.kind == "answers" else "0",
        }
        return _damage_all(home, args.kind, args.count, args.seed)


def _damage_all(home: Path, kind: str, count: int, seed: int) -> int:
    from tests.learn.conftest import saved
    from tests.reliability.mutation import Mutator

    (home / "models").mkdir()
    saved(home / "models" / "mine")
    right = {_predict()}
    if kind == "probes":
        _measure()
    right.add(_predict())
    assert len(right) == (2 if kind == "probes" else 1), right
    files = sorted(home.glob(_KINDS[kind]))
    good = {file: file.read_bytes() for file in files}
    print(f"{kind}: {len(files)} files, {', '.join(sorted({file.suffix for file in files}))}", flush=True)
    mutator, start = Mutator(list(good.values()), seed), time.perf_counter()
    for number in range(count):
        file = mutator.random.choice(files)
        content = damaged(good[file], mutator.random) if mutator.random.random() < 0.7 else mutator.next()
        _replace(file, content)
        if (result := _predict()) not in right:
            print(f"{kind}: damage {number} of seed {seed} to {file.name}: another answer:\n{result}")
            return 1
        if kind != "probes" and file.read_bytes() != good[file]:
            print(f"{kind}: damage {number} of seed {seed} to {file.name}: it was not rebuilt")
            return 1
        for path, whole in good.items():
            _replace(path, whole)
    print(f"{kind}: {count} damages, {time.perf_counter() - start:.0f} s")
    return 0


def damaged(content: bytes, random: random.Random) -> bytes:
    """A bit flipped, bytes overwritten with zeros or noise, the end truncated or extended."""
    at = random.randrange(len(content))
    size = random.choice((1, 4, 64, 4096))
    kind = random.randrange(5)
    if kind == 0:
        return content[:at] + bytes([content[at] ^ 1 << random.randrange(8)]) + content[at + 1 :]
    if kind == 1:
        return content[:at]
    if kind == 2:
        return content + random.randbytes(size)
    noise = random.randbytes(size) if kind == 3 else bytes(size)
    return content[:at] + noise[: len(content) - at] + content[at + size :]


def _replace(file: Path, content: bytes) -> None:
    """Replace a file: mappings of the old one stay valid."""
    file.unlink(missing_ok=True)
    file.write_bytes(content)


def _predict() -> str:
    from ckh.entry import run

    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run(_PREDICT)
    return f"{code}\n{out.getvalue()}"


def _measure() -> None:
    """Store times of two kernels, twice: the later ones count."""
    import json

    from ckh.entry import run
    from ckh.learn.answers.probes import Probe, Timed, remember, this_device

    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
        assert run([*_PREDICT, "--json"]) == 0
    document = json.loads(out.getvalue())
    names = [item["kernel"] for item in document["kernels"]]
    timed = tuple(Timed(name, "ok", "", 0.5 - place / 10, 0.01) for place, name in enumerate(names[:3]))
    device = this_device("host") or ""
    remember(Probe(_problem(), "host", device, "2026-01-01T00:00:00Z", "0", "c++", timed))


def _problem() -> str:
    from ckh.ops.grouped_conv.requested import requested_convolution

    return requested_convolution({"n": 16, "c": 256}, "forward", "fp32").canonical()


if __name__ == "__main__":
    sys.exit(main())
