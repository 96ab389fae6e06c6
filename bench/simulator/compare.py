"""Reads what the benchmark and its peers print.

`executable`: the path of the benchmark in cargo's JSON messages.
`table`: medians per simulator, ratios of ours to the peers, and whether the targets are met.
"""

import json
import statistics
import sys

EVENTS_PER_CUSTOMER = 2
TARGET_EVENTS_PER_SECOND = 5e6
TARGET_RATIO = 100


def executable():
    messages = (json.loads(line) for line in sys.stdin if line.startswith("{"))
    paths = [m["executable"] for m in messages if m.get("executable")]
    print(paths[-1])


def table():
    runs = [json.loads(line) for line in sys.stdin]
    ours = [run for run in runs if "simulator" not in run]
    short, long = ours[:-1], ours[-1]
    speeds = {"tidegate": [run["customers_per_second"] for run in short]}
    for run in runs:
        if "simulator" in run:
            speeds.setdefault(run["simulator"], []).append(run["customers_per_second"])
    best = statistics.median(speeds["tidegate"])
    print(f"{'simulator':<14}{'customers/s':>14}{'events/s':>14}{'ours is':>10}")
    met = best * EVENTS_PER_CUSTOMER >= TARGET_EVENTS_PER_SECOND
    for name, samples in speeds.items():
        speed = statistics.median(samples)
        ratio = best / speed
        met &= name == "tidegate" or ratio >= TARGET_RATIO
        times = "" if name == "tidegate" else f"{ratio:.0f} x"
        print(f"{name:<14}{speed:>14,.0f}{speed * EVENTS_PER_CUSTOMER:>14,.0f}{times:>10}")
    print(
        f"peak memory: {short[0]['peak_memory_kib']} KiB for {short[0]['customers']:,} customers, "
        f"{long['peak_memory_kib']} KiB for {long['customers']:,}"
    )
    print(
        f"targets ({TARGET_EVENTS_PER_SECOND:,.0f} events/s, {TARGET_RATIO} times either peer): "
        + ("met" if met else "missed")
    )
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit({"executable": executable, "table": table}[sys.argv[1]]())
