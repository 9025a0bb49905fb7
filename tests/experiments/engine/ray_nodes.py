"""A Ray cluster on this machine: real nodes in processes of their own, each with one core."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from commands import SOURCE

from mufuru.experiments.engine import RunError
from mufuru.experiments.engine.cluster import import_ray


def needs_ray() -> Any:
    """Skip the tests of a module where Ray is not installed."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        return import_ray()
    except RunError as error:
        pytest.skip(str(error), allow_module_level=True)


@contextmanager
def ray_cluster() -> Iterator[Any]:
    """A cluster of two nodes that import this source."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from ray.cluster_utils import Cluster

        os.environ["PYTHONPATH"] = SOURCE
        # a busy machine is no error
        patient = {"agent_register_timeout_ms": 300_000}
        head = {"num_cpus": 1, "include_dashboard": False, "_system_config": patient}
        cluster = Cluster(initialize_head=True, head_node_args=head)
        cluster.add_node(num_cpus=1)
    try:
        yield cluster
    finally:
        cluster.shutdown()  # type: ignore[no-untyped-call]
