"""A broker at the other end of a socket, in this process: it answers as it is written to, and goes when it is told
to.
"""

import select
import socket

import paho.mqtt.client as paho
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from hushgrid.node.transport.buffered_socket import Stream

CONNECT, PUBLISH, SUBSCRIBE, PING, DISCONNECT = 0x10, 0x30, 0x82, 0xC0, 0xE0
FOREVER = 1 << 30


class Wire:
    """A socket as a link has it, whose broker dies at call `lives` of send or recv. `silent`: packets without an
    answer.
    """

    def __init__(self, lives=FOREVER, *, five=True, silent=(), connack=None, reset=False):
        self.lives, self.five, self.silent, self.connack, self.reset = lives, five, silent, connack, reset
        self.calls = 0
        self.received = []  #: (first byte, body) of each packet
        self.ours, self.theirs = socket.socketpair()
        self.ours.setblocking(False)
        self.want = select.POLLOUT
        self.closed = 0  #: how often the link has closed it

    # what the link calls: of a dial, then of a socket

    @property
    def sock(self):
        return self

    def advance(self):
        return True

    def send(self, data):
        self._live()
        if self.theirs.fileno() < 0 and self.reset:
            raise ConnectionResetError
        sent = self.ours.send(data)
        self._answer()
        return sent

    def sendall(self, data):
        while data:
            data = data[self.send(data) :]

    def recv(self, size):
        self._live()
        if self.theirs.fileno() < 0 and self.reset:
            raise ConnectionResetError
        return self.ours.recv(size)

    def settimeout(self, seconds):
        self.ours.settimeout(seconds)

    def shutdown(self, how):
        self.ours.shutdown(how)

    def fileno(self):
        return self.ours.fileno()

    def close(self):
        self.closed += 1
        self.ours.close()

    # the broker

    def die(self):
        self.theirs.close()

    def _live(self):
        self.calls += 1
        if self.calls >= self.lives:
            self.die()

    def _answer(self):
        if self.theirs.fileno() < 0:
            return
        for first, body in packets_of(self.theirs.recv(1 << 16)):
            self.received.append((first, body))
            kind = first & 0xF0 if first & 0xF0 == PUBLISH else first
            if kind == DISCONNECT:
                self.die()
                return
            if kind not in self.silent:
                self.theirs.send(self._answer_to(kind, body))

    def _answer_to(self, kind, body):
        if kind == CONNECT:
            return self.connack or (b"\x20\x03\x00\x00\x00" if self.five else b"\x20\x02\x00\x00")
        if kind == SUBSCRIBE:
            return b"\x90\x04" + body[:2] + b"\x00\x01" if self.five else b"\x90\x03" + body[:2] + b"\x01"
        if kind == PUBLISH:
            at = 2 + int.from_bytes(body[:2], "big")
            return b"\x40\x02" + body[at : at + 2]
        return b"\xd0\x00"


# --- paho over a socket in memory: what it writes, and what it reads in bytes that somebody else has written ---


class Pipe:
    """A socket that keeps what is sent, and gives what it was fed."""

    def __init__(self):
        self.out, self.fed = bytearray(), bytearray()

    def send(self, data):
        self.out += data
        return len(data)

    def recv(self, size):
        if not self.fed:
            raise BlockingIOError
        piece = bytes(self.fed[:size])
        del self.fed[:size]
        return piece

    def setblocking(self, flag):
        pass

    def fileno(self):
        return -1

    def close(self):
        pass


class PahoTwin:
    """A connected paho client. `received`: (topic, payload, retain, number) of the publications it has read."""

    def __init__(self, five):
        self.pipe, self.five, self.received, self.acknowledged = Pipe(), five, [], []
        self.client = paho.Client(
            paho.CallbackAPIVersion.VERSION2, client_id="twin", protocol=paho.MQTTv5 if five else paho.MQTTv311
        )
        self.client._create_socket = lambda: self.pipe
        self.client.on_message = lambda c, data, m: self.received.append((m.topic, bytes(m.payload), m.retain, m.mid))
        self.client.on_publish = lambda c, data, mid, reason, p: self.acknowledged.append((mid, reason.value))
        self.client.connect("127.0.0.1")
        self.read(b"\x20\x03\x00\x00\x00" if five else b"\x20\x02\x00\x00")
        self.pipe.out.clear()

    def read(self, data):
        """Whether it is still connected after these bytes."""
        self.pipe.fed += data
        while self.pipe.fed and self.client.socket() is not None:
            self.client.loop_read()
        return self.client.socket() is not None

    def write(self, topic, payload, *, qos=1, retain=False, number=1, properties=None):
        """The bytes of a PUBLISH. `properties`: values by paho's names (MQTT 5)."""
        self.client._mid_generate = lambda: number
        stated = None
        if properties:
            stated = Properties(PacketTypes.PUBLISH)
            for name, value in properties.items():
                setattr(stated, name, value)
        self.client.publish(topic, payload, qos=qos, retain=retain, properties=stated)
        self.client.loop_write()
        said = bytes(self.pipe.out)
        self.pipe.out.clear()
        return said

    def said(self):
        """What it has written since the last look."""
        self.client.loop_write()
        out = bytes(self.pipe.out)
        self.pipe.out.clear()
        return out


def packets_of(data, *, limit=1 << 20):
    """The (first byte, body) of each packet in the bytes."""
    pipe = Pipe()
    stream = Stream(pipe, limit)
    pipe.fed += data
    while pipe.fed:
        stream.fill()
    found = []
    while (packet := stream.packet()) is not None:
        found.append(packet)
    return found
