"""mosquitto, if it is installed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hushgrid.broker.servers.process import OwnBroker
from hushgrid.kernels.errors import InputError

if TYPE_CHECKING:
    from hushgrid.node.schema.sections import Tls

# exec'd into the broker: Linux kills it when we die in whatever way, and its process id stays the one we know.
_BOUND = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(1, 9)
os.getppid() == int(sys.argv[1]) or os._exit(0)
os.execv(sys.argv[2], sys.argv[2:])
"""


def find_mosquitto() -> Path | None:
    """The mosquitto broker on PATH, or where Debian keeps what only root has on its PATH."""
    path = shutil.which("mosquitto", path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"]))
    return None if path is None else Path(path)


class Mosquitto(OwnBroker):
    """mosquitto on loopback, keeping nothing on disk.

    `acl`: access list file. `password`: password file, then nobody is anonymous. `tls`: the broker's own certificate,
    and the authority that clients must have theirs from; its name is then the user's. `config`: further lines of its
    configuration.
    """

    def __init__(
        self,
        directory: Path,
        acl: Path | None = None,
        password: Path | None = None,
        tls: Tls | None = None,
        config: Sequence[str] = (),
    ) -> None:
        program = find_mosquitto()
        if program is None:
            raise InputError(
                "--broker mosquitto: found none on PATH, /usr/sbin, /usr/local/sbin, expected it installed"
            )
        self._program = program
        self._config = directory / "mosquitto.conf"
        self._lines = [
            *([] if os.geteuid() else ["user root"]),  # else it gives up root, and may not read its own files
            "allow_anonymous " + ("true" if password is None else "false"),
            *([] if password is None else [f"password_file {password.resolve()}"]),
            *([] if acl is None else [f"acl_file {acl.resolve()}"]),
            *([] if tls is None else [f"cafile {tls.ca}", f"certfile {tls.cert}", f"keyfile {tls.key}"]),
            *([] if tls is None else ["require_certificate true", "use_identity_as_username true"]),
            "set_tcp_nodelay true",  # else every round trip waits for a delayed acknowledgement
            "persistence false",
            "max_inflight_messages 1000",
            "max_queued_messages 10000",
            "sys_interval 0",
            "log_dest stderr",
            "log_type error",
            "log_type warning",
            "log_type notice",
            "log_type information",
            *config,
        ]
        text = subprocess.run([program, "-h"], capture_output=True, text=True, check=False, timeout=10).stdout
        version = re.search(r"version (\S+)", text)
        super().__init__(f"mosquitto {version[1]}" if version else "mosquitto", directory)
        self._scheme = "mqtt" if tls is None else "mqtts"

    def _command(self, port: int) -> list[str]:
        self._config.write_text("\n".join([f"listener {port} 127.0.0.1", *self._lines]) + "\n")
        return [
            *(sys.executable, "-ISc", _BOUND, str(os.getpid())),
            *(str(self._program), "-c", str(self._config)),
        ]
