"""The engine of sweeps: dask's workers, on this machine or of a scheduler elsewhere. This module loads dask.

What the runs of a sweep have in common reaches each worker once: the rows that this program has read, when the worker
joins; a central optimum is solved by each worker at its first run that needs it, and kept.
"""

from __future__ import annotations

import logging
import secrets
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from typing import Any, NamedTuple
from urllib.parse import urlsplit
from weakref import WeakValueDictionary

import dask
from distributed import Client, LocalCluster, WorkerPlugin, as_completed, get_worker

from hushgrid.broker.report.result import Result
from hushgrid.broker.simulation.front import run
from hushgrid.broker.simulation.problems.cache import Cache, using_cache
from hushgrid.kernels.algorithms.registry import PLUGGED, plug
from hushgrid.kernels.errors import InputError, Refused, Stopped
from hushgrid.lab.comparison.rows import figures
from hushgrid.node.config.scenario import Scenario
from hushgrid.node.versions import version

AHEAD = 200  #: runs that the scheduler knows of at once
FIND_S = 10.0  #: s in which a scheduler is to be found
#: Loggers of dask's housekeeping, which is no user's business: how a run ended is in its row.
LOGGERS = ("distributed", "distributed.client", "tornado", "tornado.application")

#: dask has its processes give freed memory back at once: then every step of a run asks for its vectors' pages anew.
MALLOC = {"distributed.nanny.pre-spawn-environ.MALLOC_TRIM_THRESHOLD_": 1 << 28}

#: dask's own pages, which it always serves: on this machine alone, at any port that is free.
LOOPBACK = {"dashboard_address": "127.0.0.1:0", "worker_dashboard_address": "127.0.0.1:0"}

Measure = Mapping[str, Callable[[Result], object]]


class RunTask(NamedTuple):
    """A run to be made."""

    point: int
    seed: int
    scenario: Scenario
    file: str  #: its name in errors


#: Of the sweeps at work what this process keeps, by the name of their `Common`: workers that are this process share it.
_HERE: WeakValueDictionary[str, Cache] = WeakValueDictionary()


class Common(WorkerPlugin):  # type: ignore[misc]
    """What the runs of one sweep have in common, at each worker, those that join later among them."""

    def __init__(self, rows: Mapping[bytes, object], measure: Measure, local: bool, cache: Cache | None = None) -> None:
        """local: the workers are this program's processes. cache: what earlier sweeps of this process have loaded."""
        self.name = f"hushgrid-{secrets.token_hex(6)}"
        self.rows, self.measure = dict(rows), dict(measure)
        self.plugins, self.version, self.local = tuple(PLUGGED), version("hushgrid"), local
        if cache is not None:
            _HERE[self.name] = cache

    def setup(self, worker: Any) -> None:
        """At a worker, when the sweep begins or when it joins. Raises InputError if its version of hushgrid differs."""
        if (installed := version("hushgrid")) != self.version:
            raise InputError(f"{worker.address}: found hushgrid {installed}, expected {self.version} as here")
        plug(self.plugins, "--plugin")
        if self.local and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal; the program that is asked ends its workers
        here = _HERE.get(self.name)
        self.cache = Cache(self.rows) if here is None else here


def one(common: str, task: RunTask) -> dict[str, Any]:
    """A worker makes a run: its figures, or how it ended otherwise and why."""
    engine = get_worker().plugins[common]
    try:
        with using_cache(engine.cache):
            result = run(task.scenario, file=task.file)
        more = {name: measured(result) for name, measured in engine.measure.items()}
    except Stopped as error:
        return {"status": "stopped", "error": str(error)}
    except (InputError, Refused) as error:
        return {"status": "refused", "error": str(error)}
    except Exception as error:
        return {"status": "defect", "error": f"{type(error).__name__}: {error}"}
    return {"status": "done"} | figures(result) | more


class Engine:
    """Makes runs on the workers of a client."""

    def __init__(self, client: Client, where: str, common: Common) -> None:
        self.client, self.where, self.common = client, where, common

    @property
    def summary(self) -> str:
        """The workers in a few words."""
        n = len(self.client.nthreads())
        return f"{n} worker{'s' * (n != 1)} {self.where}" if n else f"no worker {self.where} yet: waiting for one"

    def rows(self, tasks: Iterator[RunTask]) -> Iterator[tuple[RunTask, dict[str, Any]]]:
        """Each run with what `one` returned, as they end. Raises Stopped if the scheduler is gone."""
        waiting: dict[Any, RunTask] = {}
        ended = as_completed(loop=self.client.loop)

        def submit(task: RunTask) -> None:
            key = f"{self.common.name}-{task.point}-{task.seed}"
            future = self.client.submit(one, self.common.name, task, key=key, pure=False)
            waiting[future] = task
            ended.add(future)

        for task in islice(tasks, AHEAD):
            submit(task)
        for future in ended:
            task = waiting.pop(future)
            if future.status not in ("finished", "error"):  # cancelled or lost, with the scheduler
                raise Stopped(f"the scheduler {self.where} is gone")
            error = future.exception()
            if error is None:
                yield task, future.result()
            else:  # a worker that died of it, thrice
                yield task, {"status": "defect", "error": f"{type(error).__name__}: {error}"}
            future.release()
            for more in islice(tasks, 1):
                submit(more)


@contextmanager
def engine(workers: int | None, url: str | None, common: Common) -> Iterator[Engine]:
    """Workers that are ready: `workers` processes of this machine, those of a scheduler at `url`, or this process
    itself.

    Raises InputError for an address that is none or workers of another version, Stopped for a scheduler that is not
    there.
    """
    for name in LOGGERS:
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    with dask.config.set(MALLOC), _client(workers, url) as (client, where):
        client.register_plugin(common, name=common.name)
        yield Engine(client, where, common)
        client.unregister_worker_plugin(common.name)  # not if it was interrupted: the workers may be gone


@contextmanager
def _client(workers: int | None, url: str | None) -> Iterator[tuple[Client, str]]:
    if url is None:
        local: dict[str, object] = {"processes": True, "n_workers": workers, "host": "127.0.0.1", "memory_limit": 0}
        if workers is None:
            local = {"processes": False, "n_workers": 1, "memory_limit": 0}
        with (
            LocalCluster(**local, **LOOPBACK, threads_per_worker=1, silence_logs=logging.CRITICAL) as cluster,
            Client(cluster, set_as_default=False) as client,
        ):
            yield client, "of this machine"
        return
    address = urlsplit(url)
    if address.scheme not in ("tcp", "tls", "ws", "wss") or not address.hostname or not address.port:
        raise InputError(f"--dask {url}: found no address of a scheduler, expected tcp://host:port")
    try:
        client = Client(url, set_as_default=False, timeout=FIND_S)
    except OSError:
        raise Stopped(f"--dask {url}: found no scheduler within {FIND_S:g} s, expected one") from None
    with client:
        yield client, f"at {url}"
