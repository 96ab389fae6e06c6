"""HTTP/2 floods and bombs: frames as no library would send them (RFC 9113, RFC 7541)."""

import selectors
import socket
import time

from stage import ask, peak_kib, reset_peak, rss_kib
from support import free_port

CONNECTIONS = 50
# What a flood sends on each connection unless it is cut off.
FLOOD_BYTES = 4 << 20
# A connection that is still there after this long was not cut.
PATIENCE_S = 60
KIB_MAX = 1024

DATA, HEADERS, SETTINGS, PING, CONTINUATION = 0, 1, 4, 6, 9
END_STREAM, END_HEADERS = 1, 4


def frame(kind, flags, stream, payload=b""):
    return len(payload).to_bytes(3) + bytes([kind, flags]) + stream.to_bytes(4) + payload


def text(octets):
    """A string literal: its length with a prefix of seven bits, and its bytes."""
    length = bytearray()
    rest = len(octets)
    if rest < 127:
        return bytes([rest]) + octets
    rest -= 127
    length.append(127)
    while rest >= 128:
        length.append(rest % 128 | 128)
        rest //= 128
    return bytes(length) + bytes([rest]) + octets


def literal(name, value):
    return b"\0" + text(name) + text(value)


def indexed(name, value):
    """The same, kept in the dynamic table as its newest entry, which 0xbe names."""
    return b"\x40" + text(name) + text(value)


FIELDS = b"".join(literal(name, value) for name, value in [
    (b":method", b"GET"), (b":scheme", b"http"), (b":authority", b"a"), (b":path", b"/")])
OPENING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS, 0, 0)
UNFINISHED = frame(HEADERS, 0, 1, FIELDS)
OPEN_STREAM = frame(HEADERS, END_HEADERS, 1, FIELDS)


def bombs(field):
    """A hundred requests, each of which names one field of the table ten thousand times."""
    first = FIELDS + field + b"\xbe" * 10_000
    others = FIELDS + b"\xbe" * 10_000
    return b"".join(frame(HEADERS, END_HEADERS | END_STREAM, 2 * number + 1, others if number else first)
                    for number in range(100))


FLOODS = {
    "PING": (b"", frame(PING, 0, 0, bytes(8))),
    "SETTINGS": (b"", frame(SETTINGS, 0, 0)),
    "empty DATA": (OPEN_STREAM, frame(DATA, 0, 1)),
    "CONTINUATION": (UNFINISHED, frame(CONTINUATION, 0, 1, literal(b"x-field", b"x" * 1000))),
    "empty CONTINUATION": (UNFINISHED, frame(CONTINUATION, 0, 1)),
    "HPACK bomb": (bombs(indexed(b"x-bomb", b"x" * 4000)), b""),
    "cookie bomb": (bombs(indexed(b"cookie", b"a=b")), b""),
}


class Attacker:
    """One connection that sends its bytes as fast as they are taken, and reads what comes."""

    def __init__(self, port, opening, piece):
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setblocking(False)
        self.left = memoryview(OPENING + opening + (piece * (FLOOD_BYTES // len(piece)) if piece else b""))
        self.is_cut = False

    def step(self):
        """Sends and reads what goes; false when there is no more to do."""
        try:
            if not self.socket.recv(1 << 16):
                self.is_cut = True
        except BlockingIOError:
            pass
        except OSError:
            self.is_cut = True
        if self.left and not self.is_cut:
            try:
                self.left = self.left[self.socket.send(self.left[:1 << 16]):]
            except BlockingIOError:
                pass
            except OSError:
                self.is_cut = True
        return not self.is_cut


def attack(port, opening, piece):
    """How many of the connections are cut."""
    watch = selectors.DefaultSelector()
    attackers = [Attacker(port, opening, piece) for _ in range(CONNECTIONS)]
    for each in attackers:
        watch.register(each.socket, selectors.EVENT_READ | selectors.EVENT_WRITE, each)
    deadline = time.monotonic() + PATIENCE_S
    while watch.get_map() and time.monotonic() < deadline:
        for key, _ in watch.select(1):
            if not key.data.step():
                watch.unregister(key.fileobj)
            elif not key.data.left:
                watch.modify(key.fileobj, selectors.EVENT_READ, key.data)
    for each in attackers:
        each.socket.close()
    return sum(each.is_cut for each in attackers)


def http2_floods(stage):
    """HTTP/2 floods and bombs, 50 connections each: all are cut, below 1 MiB of memory each"""
    port = free_port()
    stage.app(port)
    worst, uncut = {}, []
    for name, (opening, piece) in FLOODS.items():
        # A new one each time: what an allocator has once got hides what the next attack takes.
        proxy = stage.proxy([port])
        ask(stage.port)
        before = rss_kib(proxy)
        reset_peak(proxy)
        if attack(stage.port, opening, piece) < CONNECTIONS or ask(stage.port)[0] != 200:
            uncut.append(name)
        worst[name] = (peak_kib(proxy) - before) / CONNECTIONS
    most = ", ".join(f"{name} {kib:.0f}" for name, kib in worst.items())
    said = f"; not cut: {', '.join(uncut)}" if uncut else ""
    return f"KiB per connection: {most}{said}", not uncut and max(worst.values()) < KIB_MAX
