"""`@kernel`: an update function compiled by numba where HUSHGRID_KERNELS=numba asks for it, else the plain function.

Not asked for, numba is never imported: a small device keeps its memory, and whether an extra happens to be installed
changes no bits. A kernel is therefore written to be right and fast in both: whole-array numpy that numba accepts too.

numba keeps compiled code beside a stamp of the kernel's own file and never looks at the files of its callees. The cache
directory is hence named by a digest of every file below this folder: an edit to any of them starts an empty one. It
lies in $CACHE_DIRECTORY (systemd's), else the user's cache; where neither can be written, each process compiles anew.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from hushgrid.kernels.errors import InputError

Function = TypeVar("Function", bound=Callable[..., object])


def _mode() -> str:
    mode = os.environ.get("HUSHGRID_KERNELS") or "numpy"
    if mode not in ("numba", "numpy"):
        raise InputError(f"HUSHGRID_KERNELS: found {mode!r}, expected numba or numpy")
    return mode


MODE = _mode()  #: "numba" or "numpy"; one process runs all its kernels in one mode


def kernel(function: Function) -> Function:
    """`function` compiled (mode numba: njit, IEEE division, cached) or as it is. Raises InputError if numba
    is missing.
    """
    return _compiled(function) if MODE == "numba" else function


def kernel_or(plain: Function) -> Callable[[Function], Function]:
    """`@kernel_or(plain)`: loops that only a compiler makes fast; where nothing is compiled, `plain` takes
    their place.
    """
    return lambda loops: _compiled(loops) if MODE == "numba" else plain


def source_digest() -> str:
    """What the cache directory is named by: SHA-256 of the paths and contents of all source files below this folder."""
    digest, folder = hashlib.sha256(), Path(__file__).parent
    for path in sorted(folder.rglob("*.py")):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(folder).as_posix()}:{len(content)}:".encode() + content)
    return digest.hexdigest()[:16]


@cache
def cache_directory() -> str | None:
    """Where compiled kernels of these very sources are kept; None where no place can be written."""
    places = [os.environ.get("CACHE_DIRECTORY", "").split(":")[0], os.environ.get("XDG_CACHE_HOME", "")]
    places.append(os.path.join(os.path.expanduser("~"), ".cache"))
    for place in filter(os.path.isabs, places):
        directory = Path(place, "hushgrid", f"kernels-{source_digest()}")
        probe = directory / f"probe-{os.getpid()}"
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            probe.touch()  # permission bits say little: of a read-only mount, or to root
            probe.unlink()
        except OSError:
            continue
        return str(directory)
    return None


def _compiled(function: Any) -> Any:
    try:
        import numba
    except ImportError as error:
        raise InputError(f"HUSHGRID_KERNELS: found numba, which cannot be imported ({error}), expected numpy") from None
    directory = cache_directory()
    config: Any = numba.config  # sets its attributes at run time
    before, config.CACHE_DIR = config.CACHE_DIR, directory or ""
    try:  # the place is chosen when a function is decorated: other users of numba keep theirs
        return numba.njit(cache=directory is not None, error_model="numpy")(function)
    finally:
        config.CACHE_DIR = before
