"""Functions that run in the process of a Dask scheduler, which passes itself as `dask_scheduler`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from ckh.version import __version__

if TYPE_CHECKING:
    from collections.abc import Sequence


_CLAIM_S = 1.0  # after which an uncalled claim expires


def claim(names: Sequence[str], key: str, client: str, dask_scheduler: Any) -> dict[str, str]:
    """See `Cluster.claim`. The named calls are kept for the client."""
    claims: dict[str, tuple[str, float]] = dask_scheduler.__dict__.setdefault("ckh_claims", {})
    tasks, now = dask_scheduler.tasks, time.monotonic()
    taken = {}
    for name in names:
        holder, since = claims.get(name, ("", 0.0))
        is_running = holder in tasks and tasks[holder].state != "erred"
        if holder != key and (is_running or now < since + _CLAIM_S):
            taken[name] = holder
        else:
            claims[name] = key, now
    dask_scheduler.client_desires_keys([holder for holder in set(taken.values()) if holder in tasks], client)
    return taken


def join(key: str, client: str, dask_scheduler: Any) -> None:
    """Send a call's result to a client, now or once there is one."""
    dask_scheduler.client_desires_keys([key], client)


def are_called(keys: Sequence[str], dask_scheduler: Any) -> bool:
    """True if there is a call with each key."""
    return all(key in dask_scheduler.tasks for key in keys)


def workers_of(dask_scheduler: Any) -> list[tuple[str, str, int]]:
    """Workers by address, each with the name of its machine and its number of parallel calls."""
    return sorted((worker.address, worker.host, worker.nthreads) for worker in dask_scheduler.workers.values())


def has_pages(dask_scheduler: Any) -> bool:
    """True if the scheduler serves Dask's dashboard.

    Without Bokeh, or with --no-dashboard, its port answers too, and is among its services, but has no such pages.
    """
    return any(hasattr(application, "app_paths") for application in dask_scheduler.http_application.applications)


def offer(address: str, dask_scheduler: Any) -> None:
    """Assign waiting calls to a worker by its resources; Dask itself does this only when a worker joins."""
    worker = dask_scheduler.workers.get(address)
    if worker is not None:
        waiting = dask_scheduler.bulk_schedule_unrunnable_after_adding_worker(worker)
        dask_scheduler.transitions(waiting, f"advertise-{time.time()}")


def is_withdrawn() -> bool:
    """True if no client waits for the current call any more, because it was stopped or died.

    Dask runs such a call to its end, and other calls wait for it.
    """
    from distributed import get_worker

    worker = get_worker()
    task = worker.state.tasks.get(worker.get_current_task())
    return task is None or task.state == "cancelled"


def own_version() -> str:
    """Version of ckh, also for the scheduler's process."""
    return __version__


async def set_resources(resources: dict[str, float], dask_worker: Any) -> None:
    """Set the resources that the worker reports."""
    await dask_worker.set_resources(**resources)
