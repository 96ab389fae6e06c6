"""Clients that do what is allowed, to harm others."""

import http.client
import os
import socket
import threading
from concurrent.futures import ThreadPoolExecutor

from stage import Skipped, adjust, good_share, rss_kib, wait_for
from support import free_port

SECONDS = 12
# What a page costs has to be seen a few times before it can be refused for that.
LEARNING_SECONDS = 45


class Attack(threading.Thread):
    """So many clients a second, each of which does something on a connection of its own."""

    def __init__(self, stage, rate, behave):
        super().__init__(daemon=True)
        self.port, self.pause, self.behave = stage.port, 1 / rate, behave
        self.over = threading.Event()
        self.open = []

    def run(self):
        while not self.over.wait(self.pause):
            client = socket.socket()
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.connect(("127.0.0.1", self.port))
            self.behave(client)
            self.open.append(client)

    def stop(self):
        self.over.set()
        self.join()
        for client in self.open:
            client.close()


def choose_slowest(client):
    client.sendall(b"GET /slow HTTP/1.1\r\nHost: a\r\n\r\n")


def read_nothing(client):
    client.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")


def abort(client):
    """Gone when the replica has begun."""
    client.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    timer = threading.Timer(0.02, client.close)
    timer.daemon = True
    timer.start()


HONEST = 140


def few_attackers(stage):
    """5 % of the clients choose a page of ten times the work, read nothing, or abort: honest goodput at least 90 %"""
    port = free_port()
    # 200 requests a second; honest clients want seven tenths of that.
    stage.app(port, "--slow-path", "/slow=10x", "--response", "200KB")
    adjust(port, service="exp:40ms")
    told, least = [], 1.0
    for mode in ["auto", "sentry"]:
        stage.proxy([port], f"protect = {{ mode = '{mode}', target = '500ms' }}")
        if good_share(honest_load(stage)) < 0.99:
            raise Skipped("the machine is too busy to tell: honest clients alone are not served in time")
        seconds = {choose_slowest: LEARNING_SECONDS, read_nothing: SECONDS, abort: SECONDS}
        shares = {behave.__name__: under(stage, behave, seconds[behave]) for behave in seconds}
        told.append(f"mode {mode}: " + ", ".join(f"{name} {share:.1%}" for name, share in shares.items()))
        least = min(least, *shares.values())
    return "; ".join(told), least >= 0.9


def honest_load(stage, seconds=SECONDS):
    return stage.load(HONEST, seconds, "--warm-up", "3s")


def under(stage, behave, seconds):
    """What is left to honest clients."""
    attack = Attack(stage, HONEST * 5 / 95, behave)
    attack.start()
    share = good_share(honest_load(stage, seconds))
    attack.stop()
    return share


POISON_HONEST = 100
POISON_PHASES = 10
POISON_PHASE_SECONDS = 6


def poisoned_windows(stage):
    """5 % of the requests go to a page of 3 s, on and off every 6 s: honest goodput at least 95 % in every phase"""
    port = free_port()
    # 20 ms with any concurrency: every refusal is the proxy's own doing.
    stage.start("app", "--listen", f"127.0.0.1:{port}", "--workers", "1000", "--service", "det:20ms",
                "--slow-path", "/slow=150x")
    wait_for(port)
    stage.proxy([port])
    shares = []
    for phase in range(POISON_PHASES):
        attack = Attack(stage, POISON_HONEST * 5 / 95, choose_slowest) if phase % 2 else None
        if attack:
            attack.start()
        shares.append(good_share(stage.load(POISON_HONEST, POISON_PHASE_SECONDS, "--target-time", "1s")))
        if attack:
            attack.stop()
    if shares[0] < 0.99:
        raise Skipped("the machine is too busy to tell: honest clients alone are not served in time")
    return ", ".join(f"{share:.1%}" for share in shares), min(shares) >= 0.95


# Ten million take an hour or so: STRANGERS=10000000.
STRANGERS = int(os.environ.get("STRANGERS", 200_000))
CONNECTIONS = 16
PIPELINED = 100


def strangers(stage):
    """each request from another client and session, to another URL: memory stays as it is"""
    port = free_port()
    stage.app(port)
    adjust(port, service="det:1ms")
    proxy = stage.proxy([port], "protect = { mode = 'sentry', target = '1s' }\ntenant = 'header:x-client'\n"
                                "forward.trust = ['127.0.0.1/32']\nsession.key = 'cookie:sid'\naccess_log = 'off'\n"
                                "edge.quotas = [{ name = 'each', key = 'tenant', rate = '1/h', burst = 3 }]")
    used = statuses(stage.port, "used", 4)
    # The tables are there from the start, the allocator's habits are not.
    seen = ask_as_strangers(stage.port, 0, STRANGERS // 4)
    before = rss_kib(proxy)
    seen += ask_as_strangers(stage.port, STRANGERS // 4, STRANGERS)
    grown = (rss_kib(proxy) - before) * 1024 / (STRANGERS * 3 / 4)
    # A new client has its quota, and one that has used its own up is still known.
    fresh, again = statuses(stage.port, "honest", 3), statuses(stage.port, "used", 3)
    kept = (used, fresh, again) == ([200] * 3 + [429], [200] * 3, [429] * 3)
    return (f"{seen} answers to {STRANGERS} strangers, {rss_kib(proxy) / 1024:.0f} MiB resident, "
            f"{grown:.2f} bytes more for each; quotas {'kept' if kept else f'lost: {used} {fresh} {again}'}",
            seen == STRANGERS and grown < 4 and kept)


def statuses(port, client, count):
    """What one client is answered, one request after the other."""
    got = []
    for _ in range(count):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        connection.request("GET", "/honest", headers={"x-client": client})
        got.append(connection.getresponse().status)
        connection.close()
    return got


def ask_as_strangers(port, first, end):
    """Answers, whatever they say, to requests that have nothing in common; over several connections at once."""
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        return sum(pool.map(lambda part: ask_in_turn(port, range(first + part, end, CONNECTIONS)), range(CONNECTIONS)))


def ask_in_turn(port, numbers):
    """The same, over one connection, many at a time."""
    seen = 0
    with socket.create_connection(("127.0.0.1", port)) as client:
        for start in range(0, len(numbers), PIPELINED):
            some = numbers[start:start + PIPELINED]
            client.sendall("".join(
                f"GET /page/{number:x}z?q={number} HTTP/1.1\r\nHost: a\r\nx-client: c{number:x}\r\n"
                f"Cookie: sid=s{number:x}\r\n\r\n" for number in some).encode())
            # An answer's status line is nowhere else, and may be cut in two by the read.
            answers, tail = 0, b""
            while answers < len(some):
                got = client.recv(1 << 16)
                if not got:
                    return seen + answers
                answers += (tail + got).count(b"HTTP/1.1 ")
                tail = (tail + got)[-8:]
            seen += answers
    return seen
