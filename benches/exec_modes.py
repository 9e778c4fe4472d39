#!/usr/bin/env python3
"""How many items a second `handler = "exec"` handles with a new process for each item, and with processes that stay.

    cargo build --release
    python3 benches/exec_modes.py target/release/kvqueue

Each round fills a throw-away queue and runs `kvqueue run --until-empty` on it, with four consumers of K = 10 and a handler in Python
that only reads its item. It counts the whole time of that command, its start and its end included.
"""

import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ITEM = "import sys; sys.stdin.buffer.read()"
WORKER = """
import json, sys
sys.stdin.readline()
print('{"kvqueue": 1}', flush=True)
for line in sys.stdin:
    print(json.dumps({"id": json.loads(line)["id"], "outcome": "done"}), flush=True)
"""
CONFIG = """
[queues.q]
handler = "exec"
consumers = [ {{ k = 10, count = 4 }} ]
[queues.q.handler-config]
command = ["{python}", "-c", '''{program}''']
mode = "{mode}"
"""
# The items of a round: each takes some seconds.
ITEMS = {"item": 500, "worker": 40_000}
PROGRAMS = {"item": ITEM, "worker": WORKER}
ROUNDS = 3


def rate(kvqueue, mode):
    """The items a second of one round."""
    with tempfile.TemporaryDirectory() as directory:
        config = pathlib.Path(directory, "kvqueue.toml")
        config.write_text(CONFIG.format(python=sys.executable, program=PROGRAMS[mode], mode=mode))
        options = ["--database", f"embedded:{directory}/data", "--config", config, "-q"]
        items = "".join(f"{'x' * 90}{item:010}\n" for item in range(ITEMS[mode]))
        subprocess.run([kvqueue, "push", "q", "--lines", "-", *options], input=items.encode(), check=True, stdout=subprocess.DEVNULL)
        began = time.monotonic()
        subprocess.run([kvqueue, "run", "--until-empty", "--fail-on-dead", *options], check=True)
        return ITEMS[mode] / (time.monotonic() - began)


def main():
    kvqueue = pathlib.Path(sys.argv[1]).resolve()
    rates = {mode: [] for mode in ITEMS}
    for _ in range(ROUNDS):
        for mode in rates:
            rates[mode].append(rate(kvqueue, mode))
    for mode, found in rates.items():
        print(f"{mode:8} {statistics.median(found):10.0f} items/s  ({min(found):.0f} to {max(found):.0f})")
    ratios = sorted(worker / item for item, worker in zip(rates["item"], rates["worker"]))
    print(f"ratio    {statistics.median(ratios):10.1f}          ({ratios[0]:.1f} to {ratios[-1]:.1f})")


if __name__ == "__main__":
    main()
