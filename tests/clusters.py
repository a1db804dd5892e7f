"""Clusters on this machine that accept several clients."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from ckh.cluster.connection import connected

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ckh.cluster.calls import Cluster

_SETTINGS = {"ca-file": "tls_ca_file", "client.cert": "tls_client_cert", "client.key": "tls_client_key"}


@contextmanager
def shared_cluster(workers: int) -> Iterator[Cluster]:
    """Local workers; during the context, clients of this process and its children have the cluster's key."""
    import dask

    with connected(f"local:{workers}") as cluster, pytest.MonkeyPatch.context() as patch:
        settings = {
            f"distributed.comm.tls.{name}": getattr(cluster.client.security, field) for name, field in _SETTINGS.items()
        }
        for name, value in settings.items():
            patch.setenv("DASK_" + name.replace(".", "__").replace("-", "_").upper(), value)
        with dask.config.set(settings):
            yield cluster
