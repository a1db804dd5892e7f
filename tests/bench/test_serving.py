"""Assignment of tasks to devices: begun tasks stay on their device, and nothing is left over when a device is lost."""

from __future__ import annotations

from ckh.bench.supervision.cluster_driver import Serving
from ckh.bench.supervision.driver import BegunTasks, in_order
from ckh.cluster.calls import NodeLostError


class _Device:
    """A runner with only a name."""

    def __init__(self, node: str) -> None:
        self.node = node


def test_a_task_continues_on_its_device() -> None:
    """Its own tasks come first, then those that no device began; those of other available devices are left to them."""
    tasks = BegunTasks([("new", None), ("a's", "a"), ("b's", "b")], lambda name: name in "ab")
    assert [tasks.next("a"), tasks.next("a"), tasks.next("a")] == ["a's", "new", None]
    assert [tasks.next("b"), tasks.next("b")] == ["b's", None]


def test_tasks_of_a_lost_device_are_reassigned() -> None:
    """As soon as the device is not available any more."""
    here = {"a", "b"}
    tasks = BegunTasks([("a's", "a")], here.__contains__)
    assert tasks.next("b") is None
    here.remove("a")
    assert [tasks.next("b"), tasks.next("b")] == ["a's", None]


def test_an_idle_device_takes_tasks_of_a_lost_one() -> None:
    """A device without tasks is not started; one that is new, or gets tasks left by others, is."""
    here = {"a", "b"}
    tasks = BegunTasks([("a's", "a")], here.__contains__)
    done: list[tuple[str, str]] = []
    serving = Serving(tasks.next, lambda device, task: done.append((device.node, task)), lambda: False)
    serving.see(set(here))
    serving.do_all(_Device("b"))  # type: ignore[arg-type]
    assert (serving.is_wanted("b"), serving.is_wanted("a"), serving.is_wanted("c")) == (False, True, True)
    here.remove("a")
    serving.see(set(here))
    assert serving.is_wanted("b")
    serving.do_all(_Device("b"))  # type: ignore[arg-type]
    assert done == [("b", "a's")]
    assert not serving.is_open


def test_a_task_whose_node_is_lost_is_done_by_another() -> None:
    """It is neither forgotten nor done twice."""
    done: list[tuple[str, int]] = []

    def work(device: object, task: int) -> None:
        if (node := device.node) == "a":  # type: ignore[attr-defined]
            raise NodeLostError("its worker was lost")
        done.append((node, task))

    serving = Serving(in_order([1, 2]), work, lambda: False)
    try:
        serving.do_all(_Device("a"))  # type: ignore[arg-type]
    except NodeLostError:
        assert serving.is_open
    serving.do_all(_Device("b"))  # type: ignore[arg-type]
    assert done == [("b", 1), ("b", 2)]
    assert not serving.is_open
