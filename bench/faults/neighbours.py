"""Applications that share a proxy with one that is in trouble."""

import json
import os
import subprocess
import time
import urllib.request
from pathlib import Path

from stage import wait_for
from support import free_port

# An application's replica serves 8 / 20 ms = 400 requests a second.
CAPACITY = 400
CALM, OVERLOAD = 80, 10 * CAPACITY
SECONDS = 12
RATIO_MAX = 1.1
# One core of this machine for each: a proxy that is saturated delays everybody, whatever it does.
PROXY_CPU_MAX = 0.7
# The queue of the overloaded application may hold this much and no more.
QUEUE_BYTES = 2 << 20


def overloaded_neighbour(stage):
    """10 times the capacity of one of three applications: p99 of the others at most 1.1 times theirs alone"""
    ports = {name: free_port() for name in ("busy", "calm", "off")}
    for port in ports.values():
        stage.app(port, "--service", "det:20ms")
    stage.port, stage.admin = free_port(), free_port()
    proxy = stage.start("run", "-c", str(config(stage, ports)))
    wait_for(stage.port)
    alone = p99_of_calm(stage, ports)
    crowd = load(stage, "busy", OVERLOAD, SECONDS + 4, "--connections", "1000")
    time.sleep(2)
    before, begun = processor_seconds(proxy.pid), time.monotonic()
    beside = p99_of_calm(stage, ports)
    share = (processor_seconds(proxy.pid) - before) / (time.monotonic() - begun)
    most = queue_bytes(stage, "busy")
    requests = json.loads(crowd.communicate()[0])["requests"]
    ratio = max(beside[name] / alone[name] for name in beside)
    times = ", ".join(f"{name} {alone[name]:.1f} to {beside[name]:.1f} ms" for name in beside)
    measured = (f"{times} ({ratio:.2f} times), {requests['ok']} of {requests['total']} served beside, "
                f"{most / (1 << 20):.2f} MiB queued, the proxy used {share:.2f} of a core")
    held = most <= QUEUE_BYTES
    return measured, ratio <= RATIO_MAX and held and share <= PROXY_CPU_MAX


def config(stage, ports):
    """Three applications with different modes on one listener."""
    protect = {"busy": f"{{ target = '500ms', queue.max_bytes = {QUEUE_BYTES} }}",
               "calm": "{ mode = 'static', static.window = 100, limits.slots = 8 }", "off": "{ mode = 'off' }"}
    lines = [f'listen = "127.0.0.1:{stage.port}"', f'admin = "127.0.0.1:{stage.admin}"']
    for name, port in ports.items():
        lines += ["[[application]]", f'name = "{name}"', f'hosts = ["{name}"]',
                  f'upstream = "http://127.0.0.1:{port}"', f"protect = {protect[name]}"]
    path = stage.dir / "tidegate.toml"
    path.write_text("\n".join(lines) + "\n")
    return path


def load(stage, host, rate, seconds, *more):
    command = [str(stage.binary), "load", "--rate", f"{rate}/s", "--duration", f"{seconds}s", "--timeout", "10s",
               "--json", "--header", f"host: {host}", *more, f"http://127.0.0.1:{stage.port}/"]
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
