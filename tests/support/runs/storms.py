"""Blows to a run over a broker: processes killed, the broker started again, messages repeated and out of order."""

import time
from collections import deque
from contextlib import closing

from hushgrid.node.transport.mqtt import MqttLink


class Replayer:
    """Somebody on the broker who repeats what was said on the edges: the last message, or old ones in any order."""

    def __init__(self, url, dice):
        self.dice, self.heard = dice, deque(maxlen=500)
        self.link = MqttLink(
            url, "replayer", subscriptions=["hushgrid/1/+/edge/#", "hushgrid/1/+/all/+"], persistent=False
        )
        self.link.connect(10.0)
        self.close = self.link.close

    def listen(self, seconds):
        until = time.monotonic() + seconds
        self.heard.extend(self.link.poll(0.0))
        while (left := until - time.monotonic()) > 0:
            self.heard.extend(self.link.poll(left))

    def walking(self):
        self.listen(0.01)
        return any("coordinator" not in message.topic for message in self.heard)

    def again(self, kind):
        """Whether there was one to repeat."""
        self.listen(0.0)  # it connects again where the broker was away
        if not self.link.connected:
            return False
        message = self.heard[-1] if kind == "duplicate" else self.dice.choice(self.heard)
        self.link.publish(message.topic, message.payload)
        return True


def storm(background, broker, blows, dice, pause):
    """Blows in random order, at random instants, while the run goes on: a process killed, the broker killed and started

    again, the last message on an edge delivered once more, an old one after newer ones.
    """
    kinds = [kind for kind, count in blows.items() for _ in range(count)]
    dice.shuffle(kinds)
    with closing(Replayer(broker.url, dice)) as replayer:
        background.when(replayer.walking)
        for kind in kinds:
            replayer.listen(dice.uniform(0.0, pause))
            if kind == "kill":
                dice.choice(background.when(lambda: list(background.children().values()))).kill()
            elif kind == "restart":
                broker.restart()
            else:
                background.when(lambda kind=kind: replayer.again(kind), 60)
