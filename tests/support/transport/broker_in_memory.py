"""A broker at the other end of a socket, in this process: it answers as it is written to, and goes when it is told to."""

import select
import socket

from tests.support.transport.paho_twin import packets_of

CONNECT, PUBLISH, SUBSCRIBE, PING, DISCONNECT = 0x10, 0x30, 0x82, 0xC0, 0xE0
FOREVER = 1 << 30


class Wire:
    """A socket as a link has it, whose broker dies at call `lives` of send or recv. `silent`: packets without an answer."""

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
