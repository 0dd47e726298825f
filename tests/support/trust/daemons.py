"""Fleets of real processes with `trust:`, on a broker that anybody may use in any name."""

from tests.support.daemons.deployed_fleet import ZONES, Fleet, certificates
from tests.support.daemons.deployed_ring import SENSORS, ring

ROUNDS = {"star": 30, "token": 60, "neighbours": 30}
DPP2 = "  name: dpp2\n  alpha: 1.0\n  beta: 0.25\n  rho: 0.1\n"
WALK = (
    "  name: recal\n  rounds: 200                                 # activations: 50 of each sensor\n  walk: "
    "hamiltonian\n"
)


def members_of(pattern):
    return ZONES if pattern == "star" else SENSORS


def trusting(fleet, names, whom="ca: ../certs/ca.crt"):
    """Every file of a fleet says whom it trusts, and has a certificate of its own. `whom`: as in a device's file."""
    certificates(fleet.directory / "certs", "coordinator", *names)
    for name in ("coordinator", *names):
        device = name != "coordinator"
        file = fleet.directory / (f"nodes/{name}.yaml" if device else "coordinator.yaml")
        said = f"{whom}, cert: ../certs/{name}.crt, key: ../certs/{name}.key"
        file.write_text(file.read_text() + f"trust: {{{said if device else said.replace('../certs', 'certs')}}}\n")


def trusted(pattern, directory, url, stack, rounds=None):
    """A fleet of this pattern that is not started yet."""
    rounds = rounds or ROUNDS[pattern]
    if pattern == "star":
        fleet = Fleet(directory, url, stack)
        fleet.gradients(rounds)
    else:
        fleet = ring(directory, url, stack)
        if pattern == "token":
            fleet.edit("scenario.yaml", "rounds: 200 ", f"rounds: {rounds} ")
        else:
            fleet.edit("scenario.yaml", WALK, f"{DPP2}  rounds: {rounds}\n")
            for name in SENSORS:
                fleet.edit(f"nodes/{name}.yaml", "algorithms: [recal]", "algorithms: [recal, dpp2]")
    trusting(fleet, members_of(pattern))
    return fleet
