"""An endpoint that passes on what it hears, for loops that drive real connections."""

from hushgrid.node.runtime.endpoint import Endpoint

ROOT = "hushgrid/1/many/edge"


class Relay(Endpoint):
    """Passes on to `to` what it hears, one higher, until it is as high as `last`. `told` is what its log says."""

    subscriptions = ()

    def __init__(self, name, to, ledger, last=0):
        self.told = []
        super().__init__(name, "many", ledger, self.told.append)
        self.to, self.last = to, last
        self.subscriptions = (f"{ROOT}/+/{name}",)
        self.received, self.births, self.ticks, self.idled = [], 0, 0, 0

    @property
    def finished(self):
        return bool(self.received) and self.received[-1] >= self.last

    def say(self, number):
        return [(f"{ROOT}/{self.name}/{self.to}", b"%d" % number, False)]

    def connected(self):
        self.births += 1
        return []

    def on_message(self, topic, payload):
        assert topic == f"{ROOT}/{topic.split('/')[-2]}/{self.name}"  # to nobody else
        self.received.append(int(payload))
        return self.say(self.received[-1] + 1) if self.received[-1] < self.last else []

    def on_tick(self, now):
        self.ticks += 1
        return []

    def idle(self):
        self.idled += 1


def up(links):
    return lambda: all(link.connected for link in links)
