"""A network of pandapower opened: from its file, or one of SimBench's by its code, with every column in order.

SimBench's data are under the ODbL 1.0, its code under the BSD licence (simbench.de): nothing of it comes with hushgrid.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np

from hushgrid.kernels.errors import InputError

Net = Any  #: a network of pandapower, which has no types, or what it is made of
SIMBENCH = "simbench:"  #: before one of its codes: simbench:1-MV-rural--0-sw
LICENCE = "SimBench (simbench.de), Open Database License 1.0 (ODbL); code BSD-3-Clause"
#: Columns of yes and no, and what an entry without a value stands for.
_FLAGS = {"controllable": False, "in_service": True, "slack": False, "closed": True, "reactive_capability_curve": False}
_CONTROLLED = ("ext_grid", "gen", "dcline")  #: whose `controllable` is yes unless they say no


def open_network(name: str, where: str) -> Net:
    """The network in pandapower's file of this path, or of SimBench's code. Raises InputError, which names `where`."""
    return _of_code(name.removeprefix(SIMBENCH), where) if name.startswith(SIMBENCH) else _of_file(Path(name), where)


def _of_file(path: Path, where: str) -> Net:
    check_installed(str(path))
    import pandapower

    if not path.is_file():
        raise InputError(f"{where}: {str(path)!r}: found no such file, expected a network file of pandapower")
    try:
        with quiet():
            net = pandapower.from_json(str(path))
    except Exception as error:  # whatever its decoder and the classes it makes can raise
        raise InputError(f"{where}: {path}: {line(error)}, expected a network file of pandapower") from None
    if not isinstance(net, pandapower.pandapowerNet):
        raise InputError(f"{where}: {path}: found {type(net).__name__}, expected a network file of pandapower")
    return net


def _of_code(code: str, where: str) -> Net:
    try:
        import simbench
    except ImportError:
        raise InputError(
            f"{where}: {SIMBENCH}{code}: found no module simbench, expected it (pip install 'hushgrid[simbench]')"
        ) from None
    if code not in simbench.collect_all_simbench_codes():
        raise InputError(
            f"{where}: found {SIMBENCH}{code[:60]}, expected a code of SimBench such as {SIMBENCH}1-MV-rural--0-sw"
        )
    try:
        with quiet():
            return simbench.get_simbench_net(code)
    except Exception as error:
        raise InputError(f"{where}: {SIMBENCH}{code}: {line(error)}, expected a network of SimBench") from None


def in_order(net: Net) -> Net:
    """A copy whose columns hold what pandapower computes with: yes or no where flags are, numbers where numbers are."""
    from pandas import DataFrame, to_numeric

    net = deepcopy(net)
    for name, table in list(net.items()):
        if not isinstance(table, DataFrame) or name.startswith("_") or name.startswith("res_"):
            continue
        for column in table.columns:
            if column in _FLAGS:
                usual = True if column == "controllable" and name in _CONTROLLED else _FLAGS[column]
                missing = table[column].isna().to_numpy()
                values = np.where(missing, usual, table[column].to_numpy(dtype=object))
                table[column] = values.astype(np.bool_)
            elif table[column].dtype == object and str(column).endswith(("_mw", "_mvar", "_mva", "_pu", "_percent")):
                table[column] = to_numeric(table[column], errors="coerce").astype(np.float64)
    return net


def check_installed(where: str) -> None:
    """Raises InputError unless pandapower can be imported."""
    try:
        import pandapower  # noqa: F401
    except ImportError:
        raise InputError(
            f"{where}: found no module pandapower, expected it for its networks (pip install 'hushgrid[pandapower]')"
        ) from None


@contextmanager
def quiet() -> Iterator[None]:
    """Without pandapower's remarks on limits and costs that it fills in."""
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        yield
    finally:
        logging.disable(before)


def line(error: Exception) -> str:
    """What an error says, on one line."""
    return " ".join(str(error).split())[:200] or type(error).__name__
