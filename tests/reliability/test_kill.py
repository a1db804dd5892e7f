"""Kill: processes of a bench killed at random times; a resumed run has every pair once, and nothing is left over.

`pytest tests/reliability/test_kill.py --reliability=long` kills each of `TARGETS` 200 times; in CI
it is a few times. The figures are in docs/reliability.md.
"""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from tests.reliability.kills import Series

if TYPE_CHECKING:
    from pathlib import Path

KILLS = {"short": 3, "long": 200}
CLUSTER_KILLS = {"short": 1, "long": 50}  # a start includes that of its nodes
TARGETS = (
    *(("supervisor", number) for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)),
    ("worker", signal.SIGKILL),
    ("compiler", signal.SIGKILL),
)
CLUSTER_TARGETS = (("supervisor", signal.SIGKILL), ("node", signal.SIGKILL))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compiled kernels of all these runs."""
    return tmp_path_factory.mktemp("store")


@pytest.mark.slow
@pytest.mark.parametrize(("target", "number"), TARGETS)
def test_nothing_is_lost_when_a_process_is_killed(
    tmp_path: Path, store: Path, target: str, number: signal.Signals, reliability: str
) -> None:
    """After each run: the pairs of an undisturbed one, no duplicates, truncated lines, processes or temporary files."""
    figures = Series(tmp_path, store, target, number, seed=0).run(KILLS[reliability])
    assert figures.kills >= KILLS[reliability]
    print(f"{target} {number.name}: {figures}")  # noqa: T201 - for docs/reliability.md


@pytest.mark.slow
def test_nothing_is_lost_on_a_cluster(tmp_path: Path, store: Path, reliability: str) -> None:
    """The same with two nodes: the client with its scheduler is killed; nodes; the kernels' processes there."""
    pytest.importorskip("distributed", reason="needs the extra 'cluster'")
    kills = CLUSTER_KILLS[reliability]
    series = Series(tmp_path, store, *CLUSTER_TARGETS[0], seed=0, cluster="local:2")
    for target, number in CLUSTER_TARGETS:
        series.aim(target, number)
        figures = series.run(kills)
        assert figures.kills >= kills
        print(f"on a cluster, {target} {number.name}: {figures}")  # noqa: T201 - for docs/reliability.md
