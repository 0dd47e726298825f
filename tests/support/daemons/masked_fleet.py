"""The sensors of deploy/ring around a coordinator that sees only sums over them, as real processes with
certificates.
"""

import shutil
from hashlib import sha256
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from hushgrid.broker.servers.process import free_port
from tests.support.daemons.deployed_fleet import Fleet, broker, certificates
from tests.support.daemons.deployed_ring import SENSORS, keep, rows
from tests.support.paths import DEPLOY

ROUNDS = 12
SCENARIO = f"""
hushgrid: 1
name: masked
problem:
  kind: logistic
  data: {{devices: {{features: 8, rows: 200}}, nodes: 4}}
  row_bound: 1.0
  l2: 0.01
algorithm: {{name: fedavg, rounds: {ROUNDS}, step_size: 1.0}}
privacy:
  mechanism: gaussian
  accountant: gdp
  adjacency: {{replace-one-record: {{clip: 1.0}}}}
  epsilon: 1.0
  delta: 1.0e-5
  masked: {{corrupt: 1, contributors: 3}}
"""


#: A statistic of the same rows, in place of a model.
SUM = SCENARIO.replace("kind: logistic", "kind: mean").replace("  row_bound: 1.0\n  l2: 0.01\n", "")
SUM = SUM.replace(f"{{name: fedavg, rounds: {ROUNDS}, step_size: 1.0}}", "{name: sum}")


def fingerprint(file: Path) -> str:
    """As `openssl x509 -in FILE -outform DER | sha256sum` prints it."""
    return sha256(x509.load_pem_x509_certificate(file.read_bytes()).public_bytes(Encoding.DER)).hexdigest()


def masked_fleet(
    directory: Path,
    program: Path,
    stack,
    allow: str = "corrupt: 1, honest: 2, alone: 3.0",
    scenario: str = SCENARIO,
    more: tuple[str, ...] = (),
) -> Fleet:
    """The fleet on mosquitto with TLS. `allow`: of every owner's `allow.masked`, beside the fingerprints of all
    members. `more`: further identities, for which the access list is open.
    """
    port = free_port()
    fleet = Fleet(directory, f"mqtts://127.0.0.1:{port}", stack, DEPLOY / "ring")
    shutil.copy2(DEPLOY / "mosquitto.conf", directory)
    certificates(directory / "certs", "coordinator", *SENSORS, *more)
    if more:
        (directory / "acl").write_text("pattern readwrite hushgrid/#\n")
    fleet.edit("mosquitto.conf", "/etc/mosquitto/certs", str(directory / "certs"))
    fleet.edit("mosquitto.conf", "log_dest syslog", "log_dest stderr")
    (directory / "scenario.yaml").write_text(scenario)
    peers = ", ".join(fingerprint(directory / "certs" / f"{name}.crt") for name in SENSORS)
    for i, name in enumerate(SENSORS):
        keep(fleet, name, rows(seed=i))
        fleet.edit(
            f"nodes/{name}.yaml",
            "algorithms: [recal]",
            f"algorithms: [fedavg, sum]\n  masked: {{{allow}, peers: [{peers}]}}",
        )
        fleet.edit(f"nodes/{name}.yaml", "  epsilon: 20.0", "  epsilon: 20.0\n  delta: 1.0e-5")
    broker(fleet, program, "mosquitto.conf", "8883", f"{port} 127.0.0.1")
    return fleet
