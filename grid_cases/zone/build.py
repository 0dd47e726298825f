"""Zone models of a case: variables and constraints (D.2d)-(D.2l) in cvxpy, canonicalised once into plain arrays.

The only room that needs cvxpy, and only where a model is built: importing this module does not load it, models are
kept on disk, and `ensure_model` builds a missing one in a process of its own.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.metadata
import importlib.util
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from hushgrid.grid_cases.case import Case
from hushgrid.grid_cases.elements.parts import WITHOUT
from hushgrid.grid_cases.matpower import load
from hushgrid.grid_cases.matrix import Matrix
from hushgrid.grid_cases.partition import Zones, explicit, partition
from hushgrid.grid_cases.variables import Layout
from hushgrid.grid_cases.zone.model import ZoneModel, load_model, save_model
from hushgrid.kernels.errors import InputError


def build(case: Case, name: str, buses: Iterable[int], diagonal: bool = False) -> ZoneModel:
    """The model of the zone with these own buses, canonicalised by cvxpy. It depends on no other zone's split."""
    import cvxpy as cp

    layout = Layout.from_case(case.without_loads(), buses)
    n = len(layout.keys)
    z, D, q = cp.Variable(n), np.arange(1.0, n + 1), np.arange(-1.0, -n - 1, -1.0)
    program = cp.Problem(cp.Minimize(0.5 * cp.sum(cp.multiply(D, cp.square(z))) + q @ z), layout.constraints(z))
    data = program.get_problem_data(cp.CLARABEL, solver_opts={"use_quad_obj": True})[0]
    # ZoneStep sets P = diag(D) and q itself: the solver's variables must be z, in order.
    if data["A"].shape[1] != n or not (
        np.array_equal(data["P"].toarray(), np.diag(D)) and np.array_equal(data["c"], q)
    ):
        raise RuntimeError("cvxpy canonicalised the zone to other variables than z")
    dims = data["dims"]
    cone_A = data["A"].tocoo()
    return ZoneModel(
        name=name,
        buses=layout.buses,
        keys=layout.keys,
        shared=layout.shared(diagonal),
        start=layout.flat_start(),
        A=layout.balance(),
        cone_A=Matrix.from_entries(cone_A.shape, cone_A.row, cone_A.col, cone_A.data),
        cone_b=np.asarray(data["b"], np.float64),
        zero=int(dims.zero),
        nonneg=int(dims.nonneg),
        soc=tuple(int(k) for k in dims.soc),
    )


ZoneChoice = int | Sequence[Sequence[int]] | Mapping[str, Sequence[int]]  #: a number, or explicit lists of buses


def zones_of(case: Case, zones: ZoneChoice) -> Zones:
    """The zones of a scenario: a number is partitioned, lists are checked. Raises InputError."""
    return partition(case, zones) if isinstance(zones, int) else explicit(case, zones)


def zone_models(case: Case, zones: ZoneChoice, cache: bool = True, diagonal: bool = False) -> dict[str, ZoneModel]:
    """Every zone's model, by name. With `cache`, kept on disk and read back; without a writable place, just built."""
    return {name: _cached(case, name, buses, diagonal, cache) for name, buses in zones_of(case, zones).items()}


def ensure_model(
    case_ref: str | Path, name: str, buses: Sequence[int], diagonal: bool = False, ignore: Sequence[str] = ()
) -> ZoneModel:
    """One zone's model in a process that must stay small: from the disk cache, else built by a process of its own.

    case_ref: a case name or path as for `load`. ignore: parts of it that are left out (`parts.WITHOUT`). Raises
    InputError, also where the model has to be built and cvxpy is not installed.
    """
    case = load(case_ref).without(ignore)
    known = set(case.buses.numbers.tolist())
    if foreign := [bus for bus in buses if bus not in known]:
        raise InputError(f"zone {name}: found bus {foreign[0]}, expected buses of {case.name}")
    cached = _read(_cache_file(case, name, buses, diagonal))
    if cached is not None:
        return cached
    if importlib.util.find_spec("cvxpy") is None:
        raise InputError(
            f"zone model {name} of {case.name}: not in the cache, and cvxpy is not installed; copy the file made by "
            f"`hushgrid case zones {case_ref} --export DIR` on another machine, or install hushgrid[model]"
        )
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory, f"{name}.npz")
        command = [sys.executable, "-m", "hushgrid.grid_cases.zone.build", str(case_ref), name, str(file)]
        arguments = [*map(str, buses), *(["--diagonal"] if diagonal else []), *(f"--ignore={part}" for part in ignore)]
        done = subprocess.run([*command, *arguments], capture_output=True, text=True, check=False)
        if done.returncode:
            reason = (done.stderr.strip().splitlines() or [f"exit {done.returncode}"])[-1]
            raise InputError(f"zone model {name} of {case.name}: could not be built: {reason}")
        model = load_model(file)
    _write(model, _cache_file(case, name, buses, diagonal))
    return model


def cache_directory() -> Path:
    """Where models are kept: $CACHE_DIRECTORY (set by systemd), else the user's cache directory."""
    service = os.environ.get("CACHE_DIRECTORY", "").split(":")[0]
    user = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return (Path(service) if service else Path(user) / "hushgrid") / "zones"


def _cache_file(case: Case, name: str, buses: Iterable[int], diagonal: bool) -> Path | None:
    try:
        version = importlib.metadata.version("cvxpy")
    except importlib.metadata.PackageNotFoundError:
        version = "none"
    digest = hashlib.sha256(f"{case.public_digest()} {name} {sorted(buses)} {diagonal} {version} ".encode())
    here = Path(__file__).parent
    for source in (here / "build.py", here.parent / "variables.py", here / "model.py"):
        digest.update(source.read_bytes())
    try:
        return cache_directory() / f"{digest.hexdigest()[:40]}.npz"
    except RuntimeError:  # no home directory
        return None


def _cached(case: Case, name: str, buses: Sequence[int], diagonal: bool, cache: bool) -> ZoneModel:
    file = _cache_file(case, name, buses, diagonal) if cache else None
    model = _read(file)
    if model is None:
        model = build(case, name, buses, diagonal)
        _write(model, file)
    return model


def _read(file: Path | None) -> ZoneModel | None:
    try:
        return load_model(file) if file is not None and file.is_file() else None
    except (InputError, OSError):  # a damaged copy is built again
        return None


def _write(model: ZoneModel, file: Path | None) -> None:
    if file is not None:
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            save_model(model, file)
        except OSError:
            pass  # nowhere to keep it: built again next time


def main(arguments: Sequence[str] | None = None) -> int:
    """Build one zone's model into a file."""
    parser = argparse.ArgumentParser(prog="python -m hushgrid.grid_cases.zone.build", description=main.__doc__)
    parser.add_argument("case", help="a built-in case or the path of a MATPOWER .m file")
    parser.add_argument("name", help="the zone: z1, z2, ...")
    parser.add_argument("out", help="the .npz to write")
    parser.add_argument("buses", type=int, nargs="+", help="its own bus numbers")
    parser.add_argument("--diagonal", action="store_true", help="also share c of the cut lines' end buses")
    parser.add_argument("--ignore", action="append", default=[], choices=WITHOUT, help="a part that is left out")
    options = parser.parse_args(arguments)
    try:
        save_model(
            build(load(options.case).without(options.ignore), options.name, options.buses, options.diagonal),
            options.out,
        )
    except (InputError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
