"""What the benchmarks have in common."""

import json
import socket
import subprocess
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


def free_port():
    """A port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
