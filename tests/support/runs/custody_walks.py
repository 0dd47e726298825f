"""Walks of small fleets that are cut off, killed or lied to."""

from tests.support.runs.walk_in_memory import token_of

FOUR = {"network": {"kind": "complete", "nodes": 4}}
LONG = {
    "recal": FOUR | {"algorithm.rounds": 60},
    "iadmm": FOUR | {"algorithm": {"name": "iadmm", "rounds": 60, "rho": 1.0}},
    "wadmm": FOUR | {"algorithm": {"name": "wadmm", "rounds": 60, "rho": 1.0}},
}
CUT = 9  #: the token whose receiver is cut off


def cut_off(walk, moment, hop=CUT):
    """Who is delivered token `hop` first is cut off before it, after it, or between taking it and saying so: its name."""
    victim = []

    def at(delivery):
        if token_of(delivery) == (hop, 0) and not victim:
            victim.append(delivery.dst)
            return moment
        return None

    walk.hub.moment = at
    return victim
