"""What the benchmarks have in common."""

import json
import random
import socket
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def build(binary="tidegate", profile="release"):
    """Builds a program of the workspace and says where it is."""
    subprocess.run(["cargo", "build", "--quiet", "--profile", profile, "--bin", binary], cwd=ROOT, check=True)
    metadata = subprocess.run(["cargo", "metadata", "--format-version", "1", "--no-deps"], cwd=ROOT,
                              check=True, capture_output=True, text=True)
    return Path(json.loads(metadata.stdout)["target_directory"]) / profile / binary


def train():
    """Builds Tidegate as for production, and says where it is."""
    return Path(subprocess.run([ROOT / "dist/run"], check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()[-1])


PORTS = range(10_000, 32_000)


def free_port():
    """A port that was free a moment ago, below those that outgoing connections are given."""
    for port in random.sample(PORTS, len(PORTS)):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    sys.exit(f"no port from {PORTS.start} to {PORTS.stop} is free")
