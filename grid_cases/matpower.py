"""MATPOWER case files, format version 2, read as data: nothing in a file is ever executed.

Source of the format: MATPOWER User's Manual, Appendix B (Data File Format). `matpower_parser` says which statements a
file may hold.
"""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from hushgrid.grid_cases.case import Case
from hushgrid.grid_cases.matpower_parser import Parser
from hushgrid.grid_cases.tables import from_fields
from hushgrid.kernels.errors import InputError

BUILT_IN = {  #: the PGLib-OPF v23.07 files shipped with the package
    "case5": "pglib_opf_case5_pjm.m",
    "case14": "pglib_opf_case14_ieee.m",
    "case30": "pglib_opf_case30_ieee.m",
    "case39": "pglib_opf_case39_epri.m",
    "case57": "pglib_opf_case57_ieee.m",
    "case118": "pglib_opf_case118_ieee.m",
    "case300": "pglib_opf_case300_ieee.m",
}
MAX_BYTES = 64 * 2**20


def load(name_or_path: str | Path) -> Case:
    """A built-in case by name (`case14`), one of SimBench's by its code (`simbench:1-MV-rural--0-sw`), or a file:
    MATPOWER's (.m), a pandapower network (.json), a `Case` kept (.npz).

    A path ends so, or holds a slash. Raises InputError, one line, for an unknown name, a missing file, a malformed file
    or an inconsistent case.
    """
    name = str(name_or_path)
    if name in BUILT_IN:
        return parse((resources.files("hushgrid.grid_cases") / BUILT_IN[name]).read_bytes(), name)
    known = name.endswith((".m", ".json", ".npz")) or name.startswith("simbench:")
    if isinstance(name_or_path, str) and not known and "/" not in name:
        raise InputError(f"case: found {name!r}, expected one of {', '.join(BUILT_IN)} or the path of a .m file")
    if name.endswith(".json") or name.startswith("simbench:"):
        from hushgrid.grid_cases.pandapower import read

        return read(name)
    if name.endswith(".npz"):
        from hushgrid.grid_cases.archive import read as read_archive

        return read_archive(Path(name))
    try:
        with Path(name).open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"case: {name!r}: {reason}, expected a readable MATPOWER .m file") from None
    if len(content) > MAX_BYTES:
        raise InputError(f"case: {name}: found more than {MAX_BYTES} bytes, expected a MATPOWER .m file")
    return parse(content, Path(name).stem, name)


def parse(content: bytes, name: str, where: str | None = None) -> Case:
    """The case in a file's bytes; `where` names the file in messages. Raises InputError `where:LINE: found ...`."""
    fields = Parser(content.decode("utf-8", "replace"), where or name).fields()
    return from_fields(fields, name, where or name)
