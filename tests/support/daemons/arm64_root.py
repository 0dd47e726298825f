"""A root of arm64 packages whose programs run here, by qemu: the device's real wheels, on the processor that they are
for.
"""

import os
import shutil
import subprocess
from pathlib import Path

REGISTER = Path("/proc/sys/fs/binfmt_misc/register")
NAME = "hushgrid-test-aarch64"
MAGIC = (
    rf":{NAME}:M::\x7f\x45\x4c\x46\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00"
    r":\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff:{program}:F"
)


def able() -> str:
    """What is missing; "" if nothing."""
    missing = [name for name in ("debootstrap", "qemu-aarch64-static") if shutil.which(name) is None]
    return ", ".join([*missing, *(["root's rights"] if os.geteuid() else [])])


def unpacked(directory: Path) -> Path:
    """The packages unpacked, none configured: enough for Python. Made once, which needs Debian's packages."""
    root = directory / "bookworm-arm64"
    if not (root / "complete").exists():
        shutil.rmtree(root, ignore_errors=True)
        include = "--include=python3,python3-venv"
        command = ["debootstrap", "--foreign", "--arch=arm64", "--variant=minbase", include, "bookworm", str(root)]
        subprocess.run(command, check=True)
        for package in sorted((root / "var/cache/apt/archives").glob("*.deb")):
            subprocess.run(["dpkg-deb", "-x", package, root], check=True)
        (root / "complete").touch()
    return root


class Emulation:
    """While it is open, this machine runs programs for arm64."""

    def __enter__(self) -> None:
        if not REGISTER.exists():
            subprocess.run(["mount", "-t", "binfmt_misc", "none", str(REGISTER.parent)], check=True)
        if not (REGISTER.parent / NAME).exists():
            program = shutil.which("qemu-aarch64-static")
            REGISTER.write_text(MAGIC.replace("{program}", str(program)))

    def __exit__(self, *_: object) -> None:
        (REGISTER.parent / NAME).write_text("-1")
