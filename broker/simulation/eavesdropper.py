"""Everything that travels in a run, as a transcript."""

from __future__ import annotations

import base64
import os

from hushgrid.kernels.types import Document
from hushgrid.node.transport.mqtt import MqttLink
from hushgrid.node.wire import ROOT, Topics

REACH_S = 10.0  #: for the eavesdropper's broker to be there


class Eavesdropper:
    """Everything that travels, as a transcript's lines."""

    def __init__(self, fleet: str) -> None:
        self.topics = Topics(fleet)
        self.lines: list[Document] = []

    def __call__(self, topic: str, payload: bytes) -> None:
        _, src, dst = Topics(topic.split("/")[2]).parse(topic)  # that of a site is another fleet
        n, text = len(self.lines) + 1, base64.b64encode(payload).decode()
        self.lines.append({"n": n, "src": src, "dst": dst, "topic": topic, "bytes": text})


class Spy:
    """An eavesdropper's own connection to a broker."""

    def __init__(self, url: str, eavesdropper: Eavesdropper, fleet: str) -> None:
        self.eavesdropper = eavesdropper
        everything = f"{ROOT}/{fleet}/#"
        self.link = MqttLink(url, f"eavesdropper-{os.getpid()}", subscriptions=[everything], persistent=False)
        self.link.connect(REACH_S)

    def listen(self) -> None:
        for message in self.link.poll(0.0):
            self.eavesdropper(message.topic, message.payload)

    def close(self) -> None:
        self.listen()
        self.link.close()
