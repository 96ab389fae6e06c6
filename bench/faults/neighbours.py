"""Applications that share a proxy with one that is in trouble."""

import contextlib
import json
import os
import statistics
import subprocess
import time
import urllib.request
from pathlib import Path

from stage import wait_for
from support import free_port

# An application's replica serves 8 / 20 ms = 400 requests a second.
CAPACITY = 400
CALM, OVERLOAD = 80, 10 * CAPACITY
SECONDS, ROUNDS = 10, 3
RATIO_MAX = 1.1
# One core of this machine for each: a proxy that is saturated delays everybody, whatever it does.
PROXY_CPU_MAX = 0.7
# The queue of the overloaded application may hold this much and no more.
QUEUE_BYTES = 2 << 20


def overloaded_neighbour(stage):
    """10 times the capacity of one of three applications: p99 of the others at most 1.1 times theirs alone"""
    ports = {name: free_port() for name in ("busy", "calm", "off")}
    for port in ports.values():
        stage.app(port, service="det:20ms")
    # The crowd costs the machine as much when it goes to another proxy: what differs is what applications
    # of one proxy do to each other.
    elsewhere, _ = start(stage, ports)
    stage.port, proxy = start(stage, ports)
    quiet, alone, beside, shares, most = [], [], [], [], 0
    for _ in range(ROUNDS):
        quiet.append(p99_of_calm(stage, ports))
        with crowd(stage, elsewhere):
            alone.append(p99_of_calm(stage, ports))
        with crowd(stage, stage.port):
            before, begun = processor_seconds(proxy.pid), time.monotonic()
            beside.append(p99_of_calm(stage, ports))
            shares.append((processor_seconds(proxy.pid) - before) / (time.monotonic() - begun))
            most = max(most, queue_bytes(stage, "busy"))
    of = lambda those, name: statistics.median(each[name] for each in those)
    names = [name for name in ports if name != "busy"]
    ratio = max(of(beside, name) / of(alone, name) for name in names)
    times = ", ".join(f"{name} {of(alone, name):.1f} to {of(beside, name):.1f} ms" for name in names)
    share = max(shares)
    # Not held against the bound: it has in it what the crowd's clients and replicas cost this machine.
    without = max(of(beside, name) / of(quiet, name) for name in names)
    measured = (f"{times} ({ratio:.2f} times, medians of {ROUNDS}; {without:.2f} times theirs on a machine "
                f"without any crowd), {most / (1 << 20):.2f} MiB queued, "
                f"the proxy used {share:.2f} of a core")
    return measured, ratio <= RATIO_MAX and most <= QUEUE_BYTES and share <= PROXY_CPU_MAX


def start(stage, ports):
    """A proxy for the three of them: its port and process."""
    stage.port, stage.admin = free_port(), free_port()
    process = stage.start("run", "-c", str(config(stage, ports)))
    wait_for(stage.port)
    return stage.port, process


@contextlib.contextmanager
def crowd(stage, port):
    """10 times the capacity for the busy application, through the proxy of this port."""
    process = load(stage, "busy", OVERLOAD, SECONDS + 4, "--connections", "1000", port=port)
    time.sleep(2)
    yield
    process.communicate()


def config(stage, ports):
    """Three applications with different modes on one listener."""
    protect = {"busy": f"{{ target = '500ms', queue.max_bytes = {QUEUE_BYTES} }}",
               "calm": "{ mode = 'static', static.window = 100, limits.slots = 8 }", "off": "{ mode = 'off' }"}
    lines = [f'listen = "127.0.0.1:{stage.port}"', f'admin = "127.0.0.1:{stage.admin}"']
    for name, port in ports.items():
        lines += ["[[application]]", f'name = "{name}"', f'hosts = ["{name}"]',
                  f'upstream = "http://127.0.0.1:{port}"', f"protect = {protect[name]}"]
    path = stage.dir / f"tidegate-{stage.port}.toml"
    path.write_text("\n".join(lines) + "\n")
    return path


def load(stage, host, rate, seconds, *more, port=None):
    command = [str(stage.binary), "load", "--rate", f"{rate}/s", "--duration", f"{seconds}s", "--timeout", "10s",
               "--json", "--header", f"host: {host}", *more, f"http://127.0.0.1:{port or stage.port}/"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def p99_of_calm(stage, ports):
    """Of the two applications that are not overloaded, in milliseconds, both loaded at once."""
    loads = {name: load(stage, name, CALM, SECONDS) for name in ports if name != "busy"}
    return {name: json.loads(each.communicate()[0])["requests"]["latency"]["p99_ms"] for name, each in loads.items()}


def queue_bytes(stage, name):
    """What the queue of one application holds now."""
    answer = urllib.request.urlopen(f"http://127.0.0.1:{stage.admin}/api/status", timeout=5)
    return json.load(answer)["applications"][name]["queue"]["bytes"]


def processor_seconds(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
