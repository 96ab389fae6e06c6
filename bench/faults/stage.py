"""What every hardship needs: processes on loopback, load, and what came of it."""

import contextlib
import http.client
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from support import free_port


class Skipped(Exception):
    """The hardship needs something that this machine lacks."""


def wait_for(port, seconds=10):
    """Until somebody listens."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            if time.monotonic() > deadline:
                sys.exit(f"nobody listens on port {port}")
            time.sleep(0.005)


def ask(port, path="/", timeout=10):
    """One request on a connection of its own: status, headers, seconds."""
    started = time.monotonic()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    with contextlib.closing(connection):
        connection.request("GET", path)
        response = connection.getresponse()
        response.read()
        return response.status, response.headers, time.monotonic() - started


class Stage:
    """Processes of one hardship; ended with it."""

    def __init__(self, binary):
        self.binary = binary
        self.dir = Path(tempfile.mkdtemp(prefix="faults-"))
        self.processes = []

    def start(self, *args, wrapper=(), env=None, stderr=subprocess.DEVNULL):
        process = subprocess.Popen([*wrapper, str(self.binary), *args], stdout=subprocess.DEVNULL,
                                   stderr=stderr, env={**os.environ, **(env or {})})
        self.processes.append(process)
        return process

    def app(self, port, *more, service="exp:5ms"):
        process = self.start("app", "--listen", f"127.0.0.1:{port}", "--workers", "8", "--service", service, *more)
        wait_for(port)
        return process

    def config(self, replicas, extra="", host="127.0.0.1"):
        urls = ", ".join(f'"http://{host}:{port}"' for port in replicas)
        text = (f'listen = "127.0.0.1:{self.port}"\nadmin = "127.0.0.1:{self.admin}"\n'
                f'upstream.replicas = [{urls}]\n{extra}\n')
        path = self.dir / "tidegate.toml"
        # Renamed into its place, as editors do: a half-written file is never seen.
        path.with_suffix(".new").write_text(text)
        path.with_suffix(".new").rename(path)
        return path

    def proxy(self, replicas, extra="", host="127.0.0.1", **how):
        self.port, self.admin = free_port(), free_port()
        process = self.start("run", "-c", str(self.config(replicas, extra, host)), **how)
        wait_for(self.port)
        return process

    def gauge(self, name):
        """One number of the proxy's own."""
        text = urllib.request.urlopen(f"http://127.0.0.1:{self.admin}/metrics", timeout=5).read().decode()
        return next(float(line.split()[-1]) for line in text.splitlines() if line.startswith(name))

    def served(self):
        """Requests that each replica has served."""
        answer = urllib.request.urlopen(f"http://127.0.0.1:{self.admin}/api/status", timeout=5)
        application = json.load(answer)["applications"]["default"]
        return [replica["served"] for replica in application["replicas"]]

    def load(self, rate, seconds, *more, port=None):
        command = [str(self.binary), "load", "--rate", f"{rate}/s", "--duration", f"{seconds}s", "--timeout", "10s",
                   "--json", *more, f"http://127.0.0.1:{port or self.port}/"]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)

    def stop(self):
        for process in self.processes:
            process.kill()
            process.wait()


def outcome(load):
    """Requests sent, those answered 200, and those that were neither that nor
    refused by the engine for want of capacity."""
    requests = json.loads(load.communicate()[0])["requests"]
    sent = requests["total"] - requests["unsent"]
    # Refusals with a number for a reason came without a reason of the engine.
    refused = sum(count for reason, count in requests["shed_by_reason"].items() if not reason.isdigit())
    return sent, requests["ok"], sent - requests["ok"] - refused


def good_share(load):
    """Those answered 200 within the target, of all that were sent."""
    requests = json.loads(load.communicate()[0])["requests"]
    return requests["within_target"] / (requests["total"] - requests["unsent"])


def latency_ms(load, quantile):
    """A point of the distribution of those answered 200."""
    return json.loads(load.communicate()[0])["requests"]["latency"][quantile]


def adjust(port, **params):
    """Changes a replica while it runs."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}/_app/params", json.dumps(params).encode(),
                                     {"content-type": "application/json"})
    urllib.request.urlopen(request, timeout=5).close()


def rss_kib(process):
    return memory_kib(process, "VmRSS")


def peak_kib(process):
    """The most that was resident since the last `reset_peak`."""
    return memory_kib(process, "VmHWM")


def reset_peak(process):
    Path(f"/proc/{process.pid}/clear_refs").write_text("5")


def memory_kib(process, which):
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(status.split(f"{which}:")[1].split()[0])
