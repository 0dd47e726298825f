"""A zone's public model as plain arrays: what a device needs to solve its part, saved in one file.

f_p(z) = |A z + d|^2 is the zone's load shedding (D.2a) with (D.2b), (D.2c) put in; d = (p_d, q_d) of its buses is its
only private data, and nothing in the model depends on it. W_p, the constraints (D.2d)-(D.2l), is the set of z with
cone_b - cone_A z in {0}^zero x R+^nonneg x second-order cones.  Source: Ryu, Kim, "Differentially private distributed
convex optimization", Appendix D.
"""

from __future__ import annotations

import os
import tempfile
import zipfile
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from hushgrid.grid_cases.case import Floats, Ints
from hushgrid.grid_cases.matrix import Matrix
from hushgrid.kernels.errors import InputError

FORMAT = "hushgrid zone model 1"


@dataclass(frozen=True, slots=True, eq=False)
class ZoneModel:
    """One zone. Lengths: n variables, nb own buses, m cone rows. Arrays are to be read, never written."""

    name: str  #: z1, z2, ...
    buses: tuple[int, ...]  #: own bus numbers, ascending
    keys: tuple[str, ...]  #: (n,) names of the variables: pg:0, qg:0, pF:7, qF:7, pT:7, qT:7, c:4, cr:4-7, si:4-7
    shared: Ints  #: positions in z of the entries the zone shares with others (the consensus), ascending
    start: Floats  #: (n,) the flat start, independent of all data: c = cr = 1, the rest 0
    A: Matrix  #: (2 nb, n) balance: rows p of each own bus, then q of each own bus
    cone_A: Matrix  #: (m, n)
    cone_b: Floats  #: (m,)
    zero: int  #: rows of cone_A that are equalities, first
    nonneg: int  #: rows that are inequalities, next
    soc: tuple[int, ...]  #: dimensions of the second-order cones, last
    # Derived from A here and never read from a file: noise is scaled with them.
    L: float = field(init=False)  #: 2 lambda_max(A A^T), Lipschitz constant of the gradient of f_p
    row_l1: float = field(init=False)  #: max_k |A_:k of one balance row|_1, so |gradient change| <= 2 beta row_l1
    row_l2: float = field(init=False)  #: the same in the 2-norm
    row_nnz: int = field(init=False)  #: most variables in one balance row

    def __post_init__(self) -> None:
        dense = self.A.toarray()
        rows, (m, n) = dense.shape[0], self.cone_A.shape
        if not (
            rows == 2 * len(self.buses) > 0
            and dense.shape[1] == n == len(self.keys) == len(self.start)
            and m == len(self.cone_b) == self.zero + self.nonneg + sum(self.soc)
            and min(self.zero, self.nonneg, *self.soc, 0) >= 0
            and np.all((self.shared >= 0) & (self.shared < n))
            and all(np.isfinite(values).all() for values in (dense, self.cone_A.data, self.cone_b, self.start))
        ):
            raise InputError(f"zone model {self.name}: found arrays that do not fit together, expected one zone's own")
        object.__setattr__(self, "L", float(2 * np.linalg.eigvalsh(dense @ dense.T)[-1]))
        object.__setattr__(self, "row_l1", float(np.abs(dense).sum(axis=1).max()))
        object.__setattr__(self, "row_l2", float(np.sqrt((dense**2).sum(axis=1).max())))
        object.__setattr__(self, "row_nnz", int((dense != 0).sum(axis=1).max()))

    @property
    def n(self) -> int:
        """Number of variables."""
        return len(self.keys)


def gradient(A: Matrix, z: Floats, d: Floats) -> Floats:
    """2 A^T (A z + d), shape (n,): the gradient of the load shedding f_p at z."""
    result: Floats = 2.0 * (A.T @ (A @ z + d))
    return result


def objective(A: Matrix, z: Floats, d: Floats) -> float:
    """f_p(z) = |A z + d|^2, p.u.^2. Raw-data figure: never published by a private run."""
    shed = A @ z + d
    return float(shed @ shed)


def violation(model: ZoneModel, z: Floats) -> float:
    """The largest violation of (D.2d)-(D.2l) at z, p.u.; 0 where z is feasible. Cones are measured as |v| - t."""
    s = model.cone_b - model.cone_A @ z
    linear = model.zero + model.nonneg
    worst = [np.zeros(1), np.abs(s[: model.zero]), -s[model.zero : linear]]
    if model.soc:
        first = linear + np.cumsum([0, *model.soc[:-1]])
        t = s[first]
        s[first] = 0.0
        worst.append(np.sqrt(np.add.reduceat(s[linear:] ** 2, first - linear)) - t)
    return float(np.concatenate(worst).max())


def consensus(models: Iterable[ZoneModel]) -> tuple[tuple[str, ...], dict[str, Ints]]:
    """The keys of w, in order of first appearance, and for each zone the positions in w of its `shared` entries."""
    return place({model.name: [model.keys[k] for k in model.shared] for model in models})


def place(shared: Mapping[str, Sequence[str]]) -> tuple[tuple[str, ...], dict[str, Ints]]:
    """The same from the keys each zone shares."""
    places: dict[str, int] = {}
    positions = {
        name: np.array([places.setdefault(key, len(places)) for key in mine], np.int64) for name, mine in shared.items()
    }
    return tuple(places), positions


def save_model(model: ZoneModel, path: str | Path) -> None:
    """Write one .npz, complete or not at all: A by rows, cone_A by columns. Raises OSError."""
    path = Path(path)
    arrays = {
        "format": np.array(FORMAT),
        "name": np.array(model.name),
        "buses": np.array(model.buses, np.int64),
        "keys": np.array(model.keys),
        "shared": model.shared,
        "start": model.start,
        "cone_b": model.cone_b,
        "cones": np.array([model.zero, model.nonneg, *model.soc], np.int64),
    }
    for label, matrix, shape in (("A", model.A.T, model.A.shape), ("cone_A", model.cone_A, model.cone_A.shape)):
        arrays |= {f"{label}_{part}": np.asarray(getattr(matrix, part)) for part in ("data", "indices", "indptr")}
        arrays[f"{label}_shape"] = np.array(shape)
    handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            np.savez(file, allow_pickle=False, **arrays)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def _matrix(file: Mapping[str, np.ndarray], label: str, shape: tuple[int, int]) -> Matrix:
    rows, begins = (file[f"{label}_{part}"].astype(np.int64) for part in ("indices", "indptr"))
    return Matrix(file[f"{label}_data"].astype(np.float64), rows, begins, shape)


def load_model(path: str | Path) -> ZoneModel:
    """A model written by `save_model`. Raises InputError, one line, for anything else."""
    try:
        with open(path, "rb") as raw, np.load(raw, allow_pickle=False) as file:
            if "format" not in file or str(file["format"]) != FORMAT:
                raise ValueError("another format")
            nb2, n = (int(k) for k in file["A_shape"])
            m, columns = (int(k) for k in file["cone_A_shape"])
            cones = [int(k) for k in file["cones"]]
            return ZoneModel(
                name=str(file["name"]),
                buses=tuple(int(bus) for bus in file["buses"]),
                keys=tuple(str(key) for key in file["keys"]),
                shared=file["shared"].astype(np.int64),
                start=file["start"].astype(np.float64),
                A=_matrix(file, "A", (n, nb2)).T,
                cone_A=_matrix(file, "cone_A", (m, columns)),
                cone_b=file["cone_b"].astype(np.float64),
                zero=cones[0],
                nonneg=cones[1],
                soc=tuple(cones[2:]),
            )
    except OSError as error:
        raise InputError(f"zone model {path}: {error.strerror or error}, expected a readable .npz") from None
    except (
        ValueError,
        TypeError,
        KeyError,
        IndexError,
        EOFError,
        AttributeError,
        zipfile.BadZipFile,
        zlib.error,
    ) as error:
        raise InputError(
            f"zone model {path}: found {error}, expected a file of `hushgrid case zones --export`"
        ) from None
