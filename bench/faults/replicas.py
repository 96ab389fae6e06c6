"""Replicas that die, return, hang, slow down, or cannot be found."""

import socket
import subprocess
import time

from stage import Skipped, adjust, ask, latency_ms, outcome
from support import free_port


def flapping(stage):
    """one of two replicas dies and returns every second: errors below 0.5 %"""
    ports = [free_port(), free_port()]
    stage.app(ports[0])
    stage.proxy(ports)
    load = stage.load(100, 15)
    while load.poll() is None:
        replica = stage.app(ports[1])
        time.sleep(0.5)
        replica.kill()
        replica.wait()
        time.sleep(0.5)
    sent, _, lost = outcome(load)
    return f"{lost} of {sent} requests failed ({lost / sent:.2%})", lost / sent < 0.005


def all_dead(stage):
    """no replica left: 503 with Retry-After in under 50 ms, served within 1 s of the return"""
    port = free_port()
    replica = stage.app(port)
    stage.proxy([port])
    ask(stage.port)
    replica.kill()
    replica.wait()
    answers = [ask(stage.port) for _ in range(50)]
    honest = all(status == 503 and "retry-after" in headers for status, headers, _ in answers)
    slowest = max(seconds for _, _, seconds in answers)
    stage.app(port)
    returned = time.monotonic()
    while ask(stage.port)[0] != 200:
        time.sleep(0.01)
    back = time.monotonic() - returned
    return f"slowest {slowest * 1000:.0f} ms, back after {back * 1000:.0f} ms", honest and slowest < 0.05 and back <= 1


def hanging(stage):
    """a replica that accepts and never answers: 504 at the deadline"""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        stage.proxy([silent.getsockname()[1]], 'timeouts.request = "1s"')
        status, _, took = ask(stage.port)
    return f"{status} after {took:.2f} s", status == 504 and took < 1.5


# The 99th percentile of a replica's own time of service, exponential with a mean of 5 ms.
SERVICE_P99_MS = 23


def slower(stage):
    """one of three replicas gets ten times slower: p99 at most 1.5 times after 5 s"""
    ports = [free_port() for _ in range(3)]
    # What the machine does to answers is seen at a replica that nobody else uses, past the proxy.
    control = free_port()
    for port in [*ports, control]:
        stage.app(port)
    stage.proxy(ports)

    def measure():
        # An eighth of what three replicas can do.
        through, past = stage.load(600, 13, "--warm-up", "5s"), stage.load(50, 13, "--warm-up", "5s", port=control)
        machine = latency_ms(past, "p99_ms")
        p99 = latency_ms(through, "p99_ms")
        if machine > 2 * SERVICE_P99_MS:
            raise Skipped(f"the machine is too busy to tell: an answer past the proxy takes {machine:.0f} ms "
                          f"(p99) instead of {SERVICE_P99_MS}, one through it {p99:.0f} ms")
        return p99

    before = measure()
    earlier = stage.served()
    adjust(ports[0], speed=0.1)
    after = measure()
    new = [now - then for now, then in zip(stage.served(), earlier)]
    return (f"p99 {before:.0f} ms before, {after:.0f} ms after ({after / before:.2f} times), "
            f"{new[0] / sum(new):.1%} of the requests went to it", after <= 1.5 * before)


def lost_name(stage):
    """the name of the replicas can no longer be looked up: their last known addresses stay"""
    if subprocess.run(["unshare", "-m", "true"], stderr=subprocess.DEVNULL).returncode != 0:
        raise Skipped("it takes the right to a mount namespace (root) to take a name away")
    port = free_port()
    stage.app(port)
    names, servers = stage.dir / "hosts", stage.dir / "resolv.conf"
    names.write_text("127.0.0.1 replica.test\n")
    servers.write_text("nameserver 127.0.0.1\noptions timeout:1 attempts:1\n")
    private = f'mount --bind {names} /etc/hosts && mount --bind {servers} /etc/resolv.conf && exec "$@"'
    # Every request opens a connection, and every connection asks for the address.
    extra = "upstream.resolve_interval = '100ms'\nupstream.idle_max = 0"
    stage.proxy([port], extra, host="replica.test", wrapper=["unshare", "-m", "sh", "-c", private, "sh"])
    first, _, _ = ask(stage.port)
    names.write_text("\n")
    sent, served, lost = outcome(stage.load(100, 8, "--header", "connection: close"))
    return f"{first} before, {served} of {sent} served after", first == 200 and lost == 0 and served == sent
