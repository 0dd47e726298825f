"""Wheelhouses for tests: this checkout's, and copies of it with another hushgrid inside."""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType

from hushgrid.node.privacy.ledger_schema import FORMAT
from tests.support.paths import DEPLOY, ROOT


def wheelhouse(directory: Path) -> Path:
    """Of this checkout, for this machine and this Python."""
    done = subprocess.run(
        ["sh", DEPLOY / "wheelhouse.sh", directory],
        env={"PATH": f"{Path(sys.executable).parent}:/usr/sbin:/usr/bin:/sbin:/bin", **_pip()},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return directory


def _pip() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_", "HOME", "XDG_"))}


def changed(house: Path, directory: Path, files: Mapping[str, str], *, told: bool = True) -> Path:
    """A copy in which hushgrid's wheel has other files; `told`: the lists have its new hash."""
    shutil.copytree(house, directory, copy_function=_link)
    (wheel,) = (directory / "wheels").glob("hushgrid-*.whl")
    before = hashlib.sha256(wheel.read_bytes()).hexdigest()
    other = directory / "other.whl"
    with zipfile.ZipFile(wheel) as old, zipfile.ZipFile(other, "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            if name not in files:
                new.writestr(old.getinfo(name), old.read(name))
        for name, text in files.items():
            new.writestr(name, text)
    other.replace(wheel)
    if told:
        after = hashlib.sha256(wheel.read_bytes()).hexdigest()
        for path in directory.glob("requirements-*.txt"):
            text = path.read_text()
            path.unlink()
            path.write_text(text.replace(before, after))
    return directory


NONE: Mapping[str, str] = MappingProxyType({})
LATER = f"""
FORMAT = {FORMAT + 1}
FORMATS = ({FORMAT}, FORMAT)


def migrate(db):
    db.execute("UPDATE meta SET value = ? WHERE key = 'format'", (FORMAT,))
"""


def of_a_later_format(house: Path, directory: Path, files: Mapping[str, str] = NONE, schema: str = "") -> Path:
    """A copy whose hushgrid gives its ledgers the next format, which differs in its number alone, and in `schema`."""
    name = "hushgrid/node/privacy/ledger_schema.py"
    text = (ROOT / name.removeprefix("hushgrid/")).read_text(encoding="utf-8")
    return changed(house, directory, {name: text + LATER + schema, **files})


def _link(source: str, target: str) -> None:
    if source.endswith(".whl"):
        with suppress(OSError):  # on another file system
            Path(target).hardlink_to(source)
            return
    shutil.copy2(source, target)


def names(listed: str) -> set[str]:
    """The packages of a list."""
    return set(re.findall(r"^(\S+)==\S+ --hash=sha256:[0-9a-f]{64}$", listed, re.M))
