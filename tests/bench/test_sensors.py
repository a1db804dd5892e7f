"""Sensor readings of a card, from files of the kernel driver, and with a package like amd-smi's."""

from __future__ import annotations

import os
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from ckh.bench.isolated import sensors
from ckh.bench.isolated.sensors import read_card
from ckh.schema import CARD

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PCI, OTHER = "0000:0c:00.0", "0000:22:00.0"


@pytest.fixture(autouse=True)
def _no_package() -> Iterator[None]:
    sensors._amdsmi.cache_clear()
    yield
    sensors._amdsmi.cache_clear()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """An MI300X, which has no edge temperature, beside a busier one."""
    for pci, scale in ((PCI, 1), (OTHER, 2)):
        folder = tmp_path / f"sys/bus/pci/devices/{pci}/hwmon/hwmon7"
        folder.mkdir(parents=True)
        files = {
            "name": "amdgpu",
            "freq1_input": str(1_200_000_000 * scale),
            "temp2_label": "junction",
            "temp2_input": str(41_000 * scale),
            "temp3_label": "mem",
            "temp3_input": "99000",
            "power1_input": str(350_000_000 * scale),
            "power1_cap": "750000000",
        }
        for name, text in files.items():
            (folder / name).write_text(f"{text}\n", encoding="utf-8")
    for pid, bytes_used in ((os.getpid(), "4096"), (17, "8192"), (18, "0")):
        process = tmp_path / f"sys/class/kfd/kfd/proc/{pid}"
        process.mkdir(parents=True)
        (process / "vram_4711").write_text(f"{bytes_used}\n", encoding="utf-8")
    return tmp_path


def test_a_card_shows_its_own_sensors(root: Path) -> None:
    """Clock, junction temperature, power and its cap; and the number of other processes with memory on it."""
    card = read_card(PCI, 4711, root)
    assert card == {
        "clock_mhz": 1200.0,
        "temperature_c": 41.0,
        "power_w": 350.0,
        "power_cap_w": 750.0,
        "other_processes": 1.0,
    }
    assert card.keys() == set(CARD)
    assert read_card(OTHER, 4712, root)["power_w"] == 700.0
    assert read_card(OTHER, 4712, root)["other_processes"] == 0.0


@pytest.mark.parametrize(("is_container", "is_user", "others"), [(False, True, 1), (True, True, 1), (True, False, 2)])
def test_a_container_does_not_count_itself(root: Path, is_container: bool, is_user: bool, others: int) -> None:
    """The driver has the host's process ids, which differ there: a worker is one of those that have memory."""
    processes, namespace = root / "sys/class/kfd/kfd/proc", root / "proc/self/ns/pid"
    namespace.parent.mkdir(parents=True)
    namespace.symlink_to("pid:[4026532871]" if is_container else "pid:[4026531836]")
    if is_container:
        (processes / str(os.getpid())).rename(processes / "40123")
    assert read_card(PCI, 4711, root, is_user=is_user)["other_processes"] == others


@pytest.mark.parametrize(("is_user", "others"), [(True, 2), (False, 3)])
def test_workers_of_a_run_do_not_count_each_other(root: Path, is_user: bool, others: int) -> None:
    """With memory on the same GPU, below the run as this worker is; a worker of another run and other processes count.

    A process that is no worker only counts those below itself as its own.
    """
    run, sibling, of_another = 500, 602, 702
    parents = {os.getsid(0): run, sibling: 601, 601: run, of_another: 701, 701: 700, 700: 1}
    for process, parent in parents.items():
        (root / f"proc/{process}").mkdir(parents=True)
        (root / f"proc/{process}/status").write_text(f"Name:\tpython\nPid:\t{process}\nPPid:\t{parent}\n")
    for process in (sibling, of_another):
        (root / f"sys/class/kfd/kfd/proc/{process}").mkdir()
        (root / f"sys/class/kfd/kfd/proc/{process}/vram_4711").write_text("4096\n", encoding="utf-8")
    assert read_card(PCI, 4711, root, is_user=is_user)["other_processes"] == others


def test_missing_sensors_are_omitted(root: Path, tmp_path: Path) -> None:
    """For a card without files, and for one with the edge temperature only."""
    assert read_card("0000:99:00.0", 0, root) == {}
    folder = root / f"sys/bus/pci/devices/{PCI}/hwmon/hwmon7"
    (folder / "temp2_label").unlink()
    (folder / "power1_input").unlink()
    assert read_card(PCI, 0, root).keys() == {"clock_mhz", "power_cap_w"}
    (folder / "temp1_input").write_text("38000\n", encoding="utf-8")
    assert read_card(PCI, 0, root)["temperature_c"] == 38.0


class _SmiError(Exception):
    pass


@pytest.mark.parametrize("is_broken", [False, True])
def test_amd_smi_takes_precedence(root: Path, monkeypatch: pytest.MonkeyPatch, is_broken: bool) -> None:
    """Its metrics are used if numeric, the highest clock of several dies; files provide the others."""

    def metrics(handle: str) -> dict[str, Any]:
        if is_broken:
            raise _SmiError
        assert handle == PCI
        return {
            "current_gfxclks": [1500, 1510, 65535, "N/A"],
            "temperature_hotspot": "N/A",
            "current_socket_power": 65535,
            "average_socket_power": 360,
        }

    package = SimpleNamespace(
        AmdSmiException=_SmiError,
        amdsmi_init=lambda: None,
        amdsmi_get_processor_handle_from_bdf=lambda pci: pci,
        amdsmi_get_gpu_metrics_info=metrics,
    )
    monkeypatch.setitem(sys.modules, "amdsmi", package)
    card = read_card(PCI, 4711, root)
    assert (card["clock_mhz"], card["power_w"]) == ((1200.0, 350.0) if is_broken else (1510.0, 360.0))
    assert (card["temperature_c"], card["power_cap_w"]) == (41.0, 750.0)
