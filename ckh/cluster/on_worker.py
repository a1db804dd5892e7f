"""Functions that run in a Dask worker; called by name, so every machine needs the same version of ckh."""

from __future__ import annotations

from typing import Any

from ckh.cluster.on_scheduler import is_there
from ckh.version import __version__


def is_withdrawn() -> bool:
    """True if no client waits for the current call any more, because it was stopped or died.

    Dask runs such a call to its end, and other calls wait for it.
    """
    from distributed import get_worker

    worker = get_worker()
    task = worker.state.tasks.get(worker.get_current_task())
    return task is None or task.state == "cancelled"


def is_awaited(client: str, moment: str) -> bool:
    """True if a client is connected; all workers get the same answer for the same moment.

    So calls that wait for each other can end together.
    """
    from distributed import get_client

    result: bool = get_client().run_on_scheduler(is_there, client, moment)
    return result


def own_version() -> str:
    """Version of ckh, also for the scheduler's process."""
    return __version__


async def set_resources(resources: dict[str, float], dask_worker: Any) -> None:
    """Set the resources that the worker reports."""
    await dask_worker.set_resources(**resources)
