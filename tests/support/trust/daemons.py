"""Fleets of real processes with `trust:`, on a broker that anybody may use in any name, and who does."""

from hushgrid.node import frames
from hushgrid.node.frames import Hello
from hushgrid.node.transport.mqtt import MqttLink
from tests.support.daemons.deployed_fleet import PATIENCE, ZONES, Fleet, certificates
from tests.support.daemons.deployed_ring import SENSORS, ring
from tests.support.trust.lies import Forger, altered, framed

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


class Liar:
    """It hears all, tells every lie about it in every name, and repeats what it has heard since it began."""

    def __init__(self, url, fleet, names):
        self.names, self.forger = names, Forger(fleet, ("coordinator", *names))
        self.link = MqttLink(url, "liar", subscriptions=[f"hushgrid/1/{fleet}/#"], persistent=False)
        self.link.connect(PATIENCE)
        self.heard, self.lies, self.turn, self.statuses = [], set(), 0, {}

    def lie(self, seconds=0.05):
        """About what has come by now."""
        for message in self.link.poll(seconds):
            if "/status/" in message.topic:
                self.statuses[message.topic] = message.payload
                continue
            if message.payload in self.lies or not message.payload:
                continue
            self.heard.append((message.topic, message.payload))
            for topic, payload in self._about(*self.heard[-1]):
                self._say(topic, payload)
            for _ in range(3):
                self._say(*self.heard[self.turn % len(self.heard)])
                self.turn += 1

    def _about(self, topic, payload):
        frame = frames.decode(payload) if framed(payload) else None
        if isinstance(frame, Hello):
            yield from ((topic, posed) for posed in self.forger.poses(topic, frame, frame.echo))
            return
        if frame is None and topic.split("/")[3] in ("run", "answer"):
            return
        _, src, dst = self.forger.topics.parse(topic)
        for _, where, lie in altered(self.forger.topics, topic, payload if frame is None else frame.message):
            if frame is None:
                yield where, lie
            else:
                victims = [dst] if dst else [name for name in ("coordinator", *self.names) if name != src]
                yield from ((where, said) for said in self.forger.dresses(victims[0], where, frame, lie))

    def _say(self, topic, payload):
        self.lies.add(payload)
        self.link.publish(topic, payload)

    def until(self, over):
        """Lies until `over()`."""
        while not over():
            self.lie()
