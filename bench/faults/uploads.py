"""Clients that send their bodies, or read their answers, as slowly as they may."""

import json
import socket
import threading
import time

from frames import DATA, END_HEADERS, HEADERS, OPENING, frame, literal
from stage import Skipped, wait_for
from support import free_port

HONEST = 100
SECONDS = 15
ATTACKERS = 60
# As in the attack that once stopped the service: a byte every 400 ms, or 2 kB a second.
DRIP_S = 0.4
PIECE_S = 0.1
TARGET_MS = 1000
# All of 127/8 is this machine's: an attack from an address of its own.
ATTACKERS_ADDRESS = "127.0.0.66"

CHUNKED = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
LARGE = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10000000\r\n\r\n"
POST = b"".join(literal(name, value) for name, value in [
    (b":method", b"POST"), (b":scheme", b"http"), (b":authority", b"a"), (b":path", b"/")])


class Attack(threading.Thread):
    """Sends what `pieces` says until it is stopped, from an address of loopback's."""

    def __init__(self, port, address="127.0.0.1"):
        super().__init__(daemon=True)
        self.port, self.address = port, address
        self.over = threading.Event()
        self.open = []

    def connect(self):
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.bind((self.address, 0))
        client.connect(("127.0.0.1", self.port))
        self.open.append(client)
        return client

    def send(self, client, data):
        """One that was cut off comes back, as an attacker would."""
        try:
            client.sendall(data)
            return client
        except OSError:
            return None

    def stop(self):
        self.over.set()
        self.join()
        for client in self.open:
            client.close()


class Streams(Attack):
    """one HTTP/2 connection with 60 dripped bodies"""

    def begin(self):
        client = self.connect()
        streams = range(1, 2 * ATTACKERS, 2)
        self.send(client, OPENING + b"".join(frame(HEADERS, END_HEADERS, number, POST) for number in streams))
        return client, streams

    def run(self):
        client, streams = self.begin()
        while not self.over.wait(DRIP_S):
            data = b"".join(frame(DATA, 0, number, b"x") for number in streams)
            if self.send(client, data) is None:
                client, streams = self.begin()


class Chunks(Attack):
    """60 connections, chunked, 2 kB/s each"""

    def run(self):
        clients = [None] * ATTACKERS
        while not self.over.wait(PIECE_S):
            for at, client in enumerate(clients):
                if client is None:
                    client = self.send(self.connect(), CHUNKED)
                clients[at] = client and self.send(client, b"c8\r\n" + b"x" * 200 + b"\r\n")


class Large(Attack):
    """60 connections with bodies above the buffer, 2 kB/s each"""

    def run(self):
        clients = [None] * ATTACKERS
        while not self.over.wait(PIECE_S):
            for at, client in enumerate(clients):
                if client is None:
                    client = self.connect()
                    threading.Thread(target=self.send, args=(client, LARGE + b"x" * 200_000), daemon=True).start()
                clients[at] = client and self.send(client, b"x" * 200)


class Stopping(Attack):
    """uploads that stop, 60 a second"""

    def run(self):
        while not self.over.wait(1 / ATTACKERS):
            self.send(self.connect(), CHUNKED + b"c8\r\n" + b"x" * 200 + b"\r\n")


class Readers(Attack):
    """60 readers a second that read nothing"""

    def run(self):
        while not self.over.wait(1 / ATTACKERS):
            self.send(self.connect(), b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")


def honest(stage):
    """Share of honest requests answered in time, and the 99th percentile of their times."""
    load = stage.load(HONEST, SECONDS, "--target-time", f"{TARGET_MS}ms")
    requests = json.loads(load.communicate()[0])["requests"]
    share = requests["within_target"] / (requests["total"] - requests["unsent"])
    return share, requests["latency"]["p99_ms"]


def dripped(stage, replicas, extra="", address="127.0.0.1"):
    """All five attacks, each in front of a proxy that knows nothing yet: what came of them, and the least share."""
    ports = [free_port() for _ in range(replicas)]
    for port in ports:
        # 20 ms with any concurrency: every refusal is the proxy's own doing.
        stage.start("app", "--listen", f"127.0.0.1:{port}", "--workers", "1000", "--service", "det:20ms",
                    "--response", "50KB")
        wait_for(port)
    said, least = [], 1.0
    for kind in [Streams, Chunks, Large, Stopping, Readers]:
        proxy = stage.proxy(ports, extra)
        if kind is Streams and honest(stage)[0] < 0.99:
            raise Skipped("the machine is too busy to tell: honest clients alone are not served in time")
        attack = kind(stage.port, address)
        attack.start()
        time.sleep(1)
        share, p99 = honest(stage)
        attack.stop()
        proxy.kill()
        said.append(f"{kind.__doc__}: {share:.1%}, p99 {p99:.0f} ms")
        least = min(least, share)
    return "; ".join(said), least >= 0.99


def dripped_uploads(stage):
    """uploads and readers as slow as they may be, default configuration: honest goodput at least 99 %"""
    return dripped(stage, 1)


def dripped_uploads_of_a_tenant(stage):
    """the same before three replicas, of a tenant at an address of its own: honest goodput at least 99 %"""
    return dripped(stage, 3, "tenant = 'address'", ATTACKERS_ADDRESS)
