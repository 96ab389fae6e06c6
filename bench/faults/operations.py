"""What operators do, and what machines do to them."""

import http.client
import os
import signal
import threading
import time
from pathlib import Path

from stage import Skipped, ask, outcome, wait_for
from support import free_port

FAKETIME = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1")


def reloads(stage):
    """a hundred reloads under load lose nothing"""
    port = free_port()
    stage.app(port)
    proxy = stage.proxy([port])
    loads = [stage.load(200, 12), stage.load(100, 12, "--header", "connection: close")]
    for number in range(100):
        stage.config([port], f'timeouts.request = "{20 + number % 2}s"')
        proxy.send_signal(signal.SIGHUP)
        time.sleep(0.1)
    results = [outcome(load) for load in loads]
    lost = sum(lost for _, _, lost in results)
    return f"{lost} of {sum(sent for sent, _, _ in results)} requests lost", lost == 0


def terminate(stage):
    """SIGTERM under load: every request that was sent is answered, on reused and on new connections"""
    port = free_port()
    stage.app(port)
    proxy = stage.proxy([port])
    visitors = [Visitor(stage.port, reuses=number % 2 == 0) for number in range(20)]
    for visitor in visitors:
        visitor.start()
    time.sleep(2)
    proxy.send_signal(signal.SIGTERM)
    for visitor in visitors:
        visitor.join()
    ended = proxy.wait(40)
    reused, new = (sum(each.answered for each in visitors if each.reuses == reuses) for reuses in [True, False])
    lost = sum(each.lost for each in visitors)
    return (f"{lost} lost, {reused} answered on reused and {new} on new connections, exit status {ended}",
            lost == 0 and ended == 0 and new > 0)


class Visitor(threading.Thread):
    """Asks again and again, until it is told that the connection closes, or nobody listens any more."""

    def __init__(self, port, reuses):
        super().__init__()
        self.port, self.reuses = port, reuses
        self.answered = self.lost = 0

    def run(self):
        connection = None
        while True:
            if connection is None:
                connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
                try:
                    connection.connect()
                except ConnectionRefusedError:
                    return
            try:
                connection.request("GET", "/")
                response = connection.getresponse()
                response.read()
            except (OSError, http.client.HTTPException):
                self.lost += 1
                return
            self.answered += response.status == 200
            if self.reuses and response.headers.get("connection") == "close":
                return
            if not self.reuses:
                connection.close()
                connection = None


def killed(stage):
    """SIGKILL: serving again within 1 s of the start"""
    port = free_port()
    stage.app(port)
    victim = stage.proxy([port])
    victim.kill()
    victim.wait()
    started = time.monotonic()
    stage.start("run", "-c", str(stage.config([port])))
    wait_for(stage.port)
    status, _, _ = ask(stage.port)
    took = time.monotonic() - started
    return f"{status} after {took * 1000:.0f} ms", status == 200 and took <= 1


def upgrade(stage):
    """SIGUSR2 under load: a new process takes over and no request is lost"""
    port = free_port()
    stage.app(port)
    old = stage.proxy([port])
    loads = [stage.load(200, 10), stage.load(100, 10, "--header", "connection: close"),
             stage.load(100, 10, "--http2")]
    pid, successors = old.pid, []
    for _ in range(3):
        time.sleep(2)
        os.kill(pid, signal.SIGUSR2)
        pid = successor(stage, {old.pid, *successors})
        successors.append(pid)
    results = [outcome(load) for load in loads]
    # Only the last one is still there.
    os.kill(successors[-1], signal.SIGKILL)
    lost = sum(lost for _, _, lost in results)
    return f"{lost} of {sum(sent for sent, _, _ in results)} requests lost in 3 upgrades", lost == 0


def successor(stage, known, seconds=10):
    """The process that has taken over: one more that runs with the stage's file."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        for entry in Path("/proc").iterdir():
            try:
                line = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if entry.name.isdigit() and str(stage.dir).encode() in line and int(entry.name) not in known:
                return int(entry.name)
        time.sleep(0.005)
    raise TimeoutError("no process has taken over")


def torn_file(stage):
    """the configuration is found half-written: the old one stays in force and nothing is lost"""
    port = free_port()
    stage.app(port)
    proxy = stage.proxy([port])
    load = stage.load(200, 6)
    whole = (stage.dir / "tidegate.toml").read_text()
    for cut in range(10):
        (stage.dir / "tidegate.toml").write_text(whole[:len(whole) * cut // 10])
        proxy.send_signal(signal.SIGHUP)
        time.sleep(0.4)
    sent, _, lost = outcome(load)
    refused = stage.gauge('tidegate_reloads_total{outcome="refused"}')
    return f"{lost} of {sent} requests lost, {refused:.0f} files refused", lost == 0 and refused >= 9


def disk_full(stage):
    """the disk of the access log and of standard error is full: serving goes on, lost lines are counted"""
    ports = [free_port(), free_port()]
    stage.app(ports[0])
    doomed = stage.app(ports[1])
    with open("/dev/full", "w") as full:
        proxy = stage.proxy(ports, "access_log = '/dev/full'", stderr=full)
    load = stage.load(200, 6)
    time.sleep(2)
    # What there is to say about these finds no room either.
    doomed.kill()
    proxy.send_signal(signal.SIGHUP)
    sent, served, lost = outcome(load)
    missing = stage.gauge('tidegate_access_log_lines_lost_total{cause="refused"}')
    proxy.send_signal(signal.SIGTERM)
    ended = proxy.wait(40)
    return (f"{lost} of {sent} requests lost, {missing:.0f} lines counted as lost, exit status {ended}",
            lost == 0 and served > 0 and missing > 0 and ended == 0)


def clock_jump(stage):
    """the wall clock jumps by hours, there and back: serving goes on"""
    if not FAKETIME.exists():
        raise Skipped("it takes libfaketime (Debian: faketime)")
    port = free_port()
    stage.app(port)
    offset = stage.dir / "offset"
    offset.write_text("+0\n")
    env = {"LD_PRELOAD": str(FAKETIME), "FAKETIME_TIMESTAMP_FILE": str(offset), "FAKETIME_NO_CACHE": "1",
           # The clock that is not set by anybody does not jump in the kernel either.
           "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
    stage.proxy([port], "access_log = '%s'" % (stage.dir / "access.log"), env=env)
    load = stage.load(200, 10)
    for jump in ["+6h", "-6h", "+72h", "-1h", "+0"]:
        time.sleep(1.5)
        offset.write_text(jump + "\n")
    sent, served, lost = outcome(load)
    hours = {line.split('"')[3][:13] for line in (stage.dir / "access.log").read_text().splitlines()}
    return (f"{lost} of {sent} requests lost, the log tells of {len(hours)} different hours",
            lost == 0 and served == sent and len(hours) >= 4)
