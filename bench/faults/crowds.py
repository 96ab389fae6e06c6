"""Clients that are too many, too slow or too heavy."""

import resource
import socket
import threading
import time

import frames
from stage import adjust, ask, outcome, rss_kib
from support import free_port
from uploads import ATTACKERS_ADDRESS

SLOW_CONNECTIONS = 10_000
SLOW = [b"GET / HTTP/1.1\r\nHost: a\r\nX-Slow: ",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\nx",
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n"]


def slow_clients(stage):
    """10 000 slow heads, bodies and readers: good traffic at least 99.9 %"""
    port = free_port()
    stage.app(port, "--response", "200KB")
    proxy = stage.proxy([port], "limits.connections = 20000\nprotect.target = '1s'")
    before = rss_kib(proxy)
    asks = [b"GET / HTTP/1.1\r\nHost: a\r\nX-Slow: ",
            b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\nx",
            b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"]
    slow = []
    for number in range(SLOW_CONNECTIONS):
        client = socket.socket()
        # A small window, so that an answer does not fit into the kernel's buffers.
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(("127.0.0.1", stage.port))
        # Readers are few at a time for the replica, which has to send them everything first.
        client.sendall(asks[number % 3] if number % 3 < 2 or number % 30 == 2 else asks[0])
        slow.append(client)
    sent, good, _ = outcome(stage.load(200, 6))
    per_connection = (rss_kib(proxy) - before) / SLOW_CONNECTIONS
    for client in slow:
        client.close()
    return f"{good / sent:.2%} of {sent} good, {per_connection:.1f} KiB per slow connection", good >= 0.999 * sent


def crowded_connections(stage):
    """more slow connections of one address than there may be in all, default limits: good traffic at least 99.9 %"""
    # Each takes a descriptor here and one in the proxy; the default is 10 000.
    room = min(resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 500, 10_500)
    allowed = int(room / 1.05)
    port = free_port()
    stage.app(port)
    stage.proxy([port], f"limits.connections = {allowed}\nprotect.target = '1s'")
    flood = Flood(stage.port, room)
    flood.start()
    flood.opened.wait()
    sent, good, _ = outcome(stage.load(200, 20))
    open_now = stage.gauge("tidegate_client_connections ")
    flood.stop()
    return (f"{good / sent:.2%} of {sent} good, {flood.attempts} connections tried, {open_now:.0f} of {allowed} held",
            good >= 0.999 * sent)


class Flood(threading.Thread):
    """Keeps so many slow connections from another address, and opens a new one for each that is cut."""

    def __init__(self, port, count):
        super().__init__(daemon=True)
        self.port, self.count, self.attempts = port, count, 0
        self.over, self.opened = threading.Event(), threading.Event()

    def connect(self, number):
        self.attempts += 1
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.bind((ATTACKERS_ADDRESS, 0))
        try:
            client.connect(("127.0.0.1", self.port))
            client.sendall(SLOW[number % len(SLOW)])
        except OSError:
            pass
        return client

    def run(self):
        clients = []
        for number in range(self.count):
            clients.append(self.connect(number))
        self.opened.set()
        while not self.over.wait(0.5):
            for number, client in enumerate(clients):
                try:
                    # A byte of a head, of a body, or of the next request.
                    client.send(b"x")
                except OSError:
                    client.close()
                    clients[number] = self.connect(number)
        for client in clients:
            client.close()

    def stop(self):
        self.over.set()
        self.join()


def connection_flood(stage):
    """three times the connections that are allowed: those that are open go on, and soon others again"""
    allowed = 3000
    port = free_port()
    stage.app(port)
    proxy = stage.proxy([port], f"limits.connections = {allowed}")
    ask(stage.port)
    before = rss_kib(proxy)
    load = stage.load(100, 8, "--connections", "50")
    time.sleep(2)
    flood = []
    for _ in range(3 * allowed):
        client = socket.socket()
        client.setblocking(False)
        client.connect_ex(("127.0.0.1", stage.port))
        flood.append(client)
    grown = rss_kib(proxy) - before
    _, served, lost = outcome(load)
    for client in flood:
        client.close()
    ended = time.monotonic()
    status = 0
    while status != 200:
        try:
            status, _, _ = ask(stage.port, timeout=1)
        except OSError:
            time.sleep(0.01)
    back = time.monotonic() - ended
    return (f"{lost} lost and {served} served meanwhile, {grown / 1024:.0f} MiB more, back after {back * 1000:.0f} ms",
            lost <= 0.02 * (served + lost) and back <= 1)


def heavy_heads(stage):
    """ten times the load with heads of 64 KiB: the queue keeps within its bytes"""
    cap = 4 << 20
    port = free_port()
    stage.app(port)
    # 80 requests a second.
    adjust(port, service="exp:100ms")
    proxy = stage.proxy([port], "limits.head_bytes = '80KiB'\nlimits.connections = 20000\n"
                                "protect = { target = '5s', queue = { max_bytes = '4MiB' } }")
    load = stage.load(800, 8, "--header", "x-heavy: " + "h" * (64 << 10), "--connections", "4000")
    most = 0
    while load.poll() is None:
        most = max(most, stage.gauge("tidegate_queue_bytes"))
        time.sleep(0.05)
    sent, served, lost = outcome(load)
    return (f"at most {most / (1 << 20):.2f} of {cap >> 20} MiB queued, {served} of {sent} served, {lost} lost, "
            f"{rss_kib(proxy) / 1024:.0f} MiB resident", 0 < most <= cap)


QUEUED = 3000
STREAMS = 50
PADDING = {"heads of 100 bytes": 0, "heads of 1 kB": 900, "heads of 4 kB": 3900}


def queue_memory(stage):
    """thousands of requests in the queue: at most 10 bytes held for each byte received, and all given back"""
    port = free_port()
    stage.app(port)
    # Nobody is answered.
    adjust(port, service="det:1000s")
    said, most = [], 0
    for how in [wait_on_connections, wait_on_streams]:
        for name, padding in PADDING.items():
            proxy = stage.proxy([port], "limits.connections = 20000\nlimits.connections_per_address = '100%'\n"
                                        "access_log = 'off'\ntimeouts.request = '600s'\n"
                                        "protect = { mode = 'static', static.window = 100000, limits.slots = 8, "
                                        "target = '600s', queue.max_bytes = '256MiB', queue.max_requests = 100000 }")
            ask(stage.admin, "/healthz")
            before = rss_kib(proxy)
            clients, sent = how(stage.port, padding)
            deadline = time.monotonic() + 30
            while stage.gauge("tidegate_queue_requests") < QUEUED - 8 and time.monotonic() < deadline:
                time.sleep(0.05)
            queued = stage.gauge("tidegate_queue_requests")
            held = (rss_kib(proxy) - before) * 1024 / sent
            charged = stage.gauge("tidegate_queue_bytes") / sent
            # The proxy looks once a second whether a crowd is there, and whether it has gone.
            time.sleep(2)
            for client in clients:
                client.close()
            time.sleep(4)
            left = (rss_kib(proxy) - before) * 1024 / sent
            proxy.kill()
            said.append(f"{name} on {how.__doc__}: {queued:.0f} queued, {held:.1f} bytes held and {charged:.1f} "
                        f"charged for each, {left:.1f} left")
            most = max(most, held if padding else 0)
    return "; ".join(said), most <= 10


def wait_on_connections(port, padding):
    """connections of their own"""
    head = b"GET / HTTP/1.1\r\nHost: a\r\nX-Client: 0123456789012345678901234567890123456789\r\n"
    head += (b"X-Padding: " + b"x" * padding + b"\r\n" if padding else b"") + b"\r\n"
    clients = []
    for _ in range(QUEUED):
        client = socket.create_connection(("127.0.0.1", port))
        client.sendall(head)
        clients.append(client)
    return clients, QUEUED * len(head)


def wait_on_streams(port, padding):
    """streams of HTTP/2, 50 on each connection"""
    fields = frames.FIELDS + frames.literal(b"x-client", b"0123456789012345678901234567890123456789")
    fields += frames.literal(b"x-padding", b"x" * padding) if padding else b""
    flags = frames.END_HEADERS | frames.END_STREAM
    clients, sent = [], 0
    for _ in range(QUEUED // STREAMS):
        client = socket.create_connection(("127.0.0.1", port))
        data = frames.OPENING + b"".join(
            frames.frame(frames.HEADERS, flags, 2 * number + 1, fields) for number in range(STREAMS))
        client.sendall(data)
        sent += len(data)
        clients.append(client)
    return clients, sent
