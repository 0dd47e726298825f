"""A Debian machine for tests: its root made by debootstrap, booted by systemd-nspawn, without a network."""

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

PACKAGES = (
    "systemd", "systemd-sysv", "dbus", "mosquitto", "mosquitto-clients", "openssl", "python3", "python3-venv", "procps",
    "libfaketime",
)  # fmt: skip
SUITE = "bookworm"
PATIENCE = 120.0  #: s


def base(directory: Path, architecture: str = "") -> Path:
    """The root that the machines of a test are copies of; made once, which needs Debian's packages."""
    root = directory / f"{SUITE}{architecture and '-'}{architecture}"
    if not (root / "complete").exists():
        shutil.rmtree(root, ignore_errors=True)
        include = ",".join(PACKAGES)
        subprocess.run(["debootstrap", "--variant=minbase", f"--include={include}", SUITE, root], check=True)
        (root / "etc/machine-id").write_text("")
        (root / "complete").touch()
    return root


NSPAWN = (
    "systemd-nspawn", "--quiet", "--boot", "--register=no", "--keep-unit", "--private-network",
    "--kill-signal=SIGRTMIN+3", "--console=read-only",
)  # fmt: skip


class Machine:
    """A root, and the systemd that runs in it."""

    def __init__(self, root: Path) -> None:
        self.root, self.child, self.pid = root, None, 0

    @classmethod
    def copied(cls, root: Path, of: Path) -> "Machine":
        subprocess.run(["rm", "-rf", root], check=True)
        subprocess.run(["cp", "-a", "--reflink=auto", of, root], check=True)
        return cls(root)

    def command(self) -> list[object]:
        return [*NSPAWN, "-D", self.root]

    def boot(self) -> float:
        """Until all that is enabled is up, or has failed. Seconds."""
        began = time.monotonic()
        self.child = subprocess.Popen(
            self.command(), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        deadline = time.monotonic() + PATIENCE
        while True:
            assert self.child.poll() is None, "systemd-nspawn ended"
            assert time.monotonic() < deadline
            children = Path(f"/proc/{self.child.pid}/task/{self.child.pid}/children").read_text().split()
            if children:
                self.pid = int(children[0])
                if self.run("systemctl is-system-running --wait", check=False).strip() in ("running", "degraded"):
                    return time.monotonic() - began
            time.sleep(0.2)

    def shut_down(self) -> None:
        if self.child is not None:
            self.child.send_signal(signal.SIGTERM)
            try:
                self.child.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                self.child.kill()
                self.child.wait()
            self.child = None

    def lose_power(self) -> None:
        """All of its processes end at once."""
        assert self.child is not None
        os.kill(self.pid, signal.SIGKILL)
        self.child.wait(PATIENCE)
        self.child = None

    def run(self, script: str, *, check: bool = True, timeout: float = 10 * PATIENCE) -> str:
        """What a shell in the machine says, stdout and stderr."""
        assert self.child is not None
        done = subprocess.run(
            ["nsenter", "-t", str(self.pid), "-a", "env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8",
             "sh", "-euc", script],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=timeout,
        )  # fmt: skip
        assert not check or done.returncode == 0, f"{script}: {done.returncode}: {done.stdout}"
        return done.stdout

    def wait_for(self, script: str, text: str, patience: float = PATIENCE) -> str:
        """Until the script says `text`."""
        deadline = time.monotonic() + patience
        while text not in (said := self.run(script, check=False)):
            assert time.monotonic() < deadline, f"no {text!r} of {script!r}: {said}"
            time.sleep(0.3)
        return said

    def unit(self, name: str, *keys: str) -> list[str]:
        """The values of properties of a unit."""
        said = self.run(f"systemctl show {name} " + " ".join(f"-p {key}" for key in keys))
        found = dict(line.split("=", 1) for line in said.splitlines() if "=" in line)
        return [found.get(key, "") for key in keys]

    def cursor(self) -> str:
        return self.run("journalctl -n 0 --show-cursor -o cat").split("cursor: ")[-1].strip()

    def journal(self, unit: str, cursor: str) -> str:
        """What a unit's process and systemd have said of it since."""
        return self.run(f"journalctl -u {unit} -o cat --after-cursor '{cursor}'")


OVERLAY = """
mount -t tmpfs none {place}
cd {place}
mkdir upper work root
mount -t overlay -o lowerdir=/,upperdir={place}/upper,workdir={place}/work none root
rm -rf root/etc/systemd/system/*.wants
: > root/etc/machine-id
exec "$@" -D root
"""


class ThisMachine(Machine):
    """This machine's own system, booted beside itself: what it writes stands in memory, and is gone with it."""

    def __init__(self, place: Path, *folders: str) -> None:
        """`folders`: what is seen in it besides, as systemd-nspawn's HERE:THERE. `place`: an empty folder."""
        super().__init__(place / "root")
        self.place, self.folders = place, folders

    def command(self) -> list[object]:
        seen = [f"--bind-ro={folder}" for folder in self.folders]
        return ["unshare", "--mount", "sh", "-euc", OVERLAY.format(place=self.place), "sh", *NSPAWN, *seen]


def able(*programs: str) -> str:
    """What is missing to boot a machine here; "" if nothing."""
    missing = [name for name in ("systemd-nspawn", "nsenter", *programs) if shutil.which(name) is None]
    return ", ".join([*missing, *(["root's rights"] if os.geteuid() else [])])


# --- The example fleet on a machine that boots: broker, coordinator and three zones, installed as docs/years.md say ---

ZONES = ("z1", "z2", "z3")
NODES = [f"hushgrid-node@{z}" for z in ZONES]
COORDINATOR = "hushgrid-coordinator"
ALL = [*NODES, COORDINATOR]
INSTALL = """
echo '127.0.0.1 broker.example' >> /etc/hosts
sh {house}/deploy/install.sh broker 3
sh {house}/deploy/install.sh node
sh {house}/deploy/install.sh coordinator
fleet="/opt/hushgrid/bin/hushgrid fleet"
$fleet init /root/fleet --fleet demo --broker mqtts://broker.example:8883 --scenario {house}/deploy/scenario.yaml \\
    --here /etc/hushgrid/certs
for z in z1 z2 z3; do
    $fleet request $z --out /etc/hushgrid/certs
    $fleet enrol /root/fleet $z --request /etc/hushgrid/certs/$z.csr
    install -o root -g hushgrid -m 0640 /root/fleet/$z.crt /etc/hushgrid/certs
done
install -m 0644 /root/fleet/broker/mosquitto.conf /etc/mosquitto/mosquitto.conf
systemctl restart mosquitto
install -o root -g hushgrid -m 0640 {house}/deploy/nodes/* /etc/hushgrid/nodes
sed -i 's/wait_s: 60/wait_s: 5/; s/silent_s: 10/silent_s: 5/' /etc/hushgrid/coordinator.yaml
systemctl enable --now hushgrid-node@z1 hushgrid-node@z2 hushgrid-node@z3 hushgrid-coordinator
"""


def shows(machine, unit):
    state, sub, restarts, status = machine.unit(unit, "ActiveState", "SubState", "NRestarts", "StatusText")
    return f"{state} ({sub}), {restarts} restarts" + (f", Status: {status}" if status else "")


def process(machine, unit):
    return machine.unit(unit, "ActiveState", "MainPID", "NRestarts")


def said(machine, unit, cursor, text):
    """The first line of the process that has `text`, waited for."""
    lines = machine.wait_for(f"journalctl -u {unit} -o cat --after-cursor '{cursor}'", text).splitlines()
    return next(line for line in lines if text in line)


def a_run(machine, cursor=None):
    """A run begins when it is asked for, and is done."""
    cursor = cursor or machine.cursor()
    machine.run(f"systemctl kill -s USR1 {COORDINATOR}")
    journal = f"journalctl -u {COORDINATOR} -o cat --after-cursor '{cursor}'"
    assert " stopped" not in (said := machine.wait_for(journal, "the next run:")), said
