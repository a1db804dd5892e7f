"""Functions that run in the process of a Dask scheduler, which passes itself as `dask_scheduler`."""

from __future__ import annotations

import time
from typing import Any

from ckh.version import __version__


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
