"""paho over a socket in memory: what it writes, and what it reads in bytes that somebody else has written."""

import paho.mqtt.client as paho
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from hushgrid.node.transport.buffered_socket import Stream


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
    """A connected paho client. `heard`: (topic, payload, retain, number) of the publications it has read."""

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
