"""Functions that run in the process of a Dask worker; called by name, so every machine needs the same ckh."""

from __future__ import annotations

from typing import Any

from ckh.cluster.on_scheduler import is_there
from ckh.version import __version__


def is_withdrawn() -> bool:
    """Whether nobody waits any more for the call that this is part of, because its client was stopped or died.

    Dask lets such a call run to its end, and other calls wait for that.
    """
    from distributed import get_worker

    worker = get_worker()
    task = worker.state.tasks.get(worker.get_current_task())
    return task is None or task.state == "cancelled"


def is_awaited(client: str, moment: str) -> bool:
    """Whether a client is there; all workers that name one moment get the same answer.

    So calls that wait for each other can end together.
    """
    from distributed import get_client

    found: bool = get_client().run_on_scheduler(is_there, client, moment)
    return found


def own_version() -> str:
    """The version of ckh, of the scheduler's process too."""
    return __version__


async def set_resources(resources: dict[str, float], dask_worker: Any) -> None:
    """Have the worker report what it has of resources."""
    await dask_worker.set_resources(**resources)
