#!/usr/bin/env python3
"""A worker process for `handler = "exec"` with `mode = "worker"`. Copy it and write your own `handle`.

    [queues.emails.handler-config]
    command = ["python3", "exec_worker.py"]
    mode = "worker"

Python 3.9 and later, nothing else. docs/workers/processes.md explains the lines.
"""

import base64
import json
import sys


class Retry(Exception):
    """The item failed. It is tried again after some seconds, or by the queue's rules."""

    def __init__(self, reason="", after=None):
        super().__init__(reason)
        # At most a year.
        self.after_ms = None if after is None else int(min(max(after, 0), 365 * 24 * 3600) * 1000)


class Release(Exception):
    """The item goes back to the queue. The attempt does not count."""


class Dead(Exception):
    """The item failed for good, and becomes a dead letter."""


def handle(item, heartbeat):
    """Handles one item. An exception is a retry; call `heartbeat()` now and then in long work."""
    print(item["id"], item["attempt"], item["payload"].decode(errors="replace"))


def outcome(item, heartbeat):
    """Calls the handler, and returns the fields of the outcome's line."""
    try:
        handle(item, heartbeat)
    except Release:
        return {"outcome": "release"}
    except Dead as error:
        return {"outcome": "dead", "reason": reason(error)}
    except Exception as error:  # an error of any kind is a failed attempt
        after = {"after_ms": error.after_ms} if isinstance(error, Retry) and error.after_ms is not None else {}
        return {"outcome": "retry", "reason": reason(error), **after}
    return {"outcome": "done"}


def reason(error):
    """The error's text as a daemon reads it: short, and without halves of surrogate pairs."""
    return (str(error) or type(error).__name__).encode("utf-8", "replace").decode()[:1000]


def main():
    lines, answers = sys.stdin.buffer, sys.stdout.buffer
    # What a handler prints goes to the daemon's log: standard output is for the daemon.
    sys.stdout = sys.stderr

    def say(line):
        answers.write(json.dumps(line).encode() + b"\n")
        answers.flush()

    lines.readline()  # {"kvqueue": 1, "queue": "emails"}
    say({"kvqueue": 1})
    # At the end of the input the daemon needs this process no longer.
    for line in lines:
        item = json.loads(line)
        if "id" not in item:  # a cancellation, and the item has ended already
            continue
        if "payload_base64" in item:
            item["payload"] = base64.b64decode(item["payload_base64"])
        else:
            item["payload"] = item["payload"].encode()
        fields = outcome(item, lambda: say({"heartbeat": item["id"]}))
        say({"id": item["id"], **fields})


if __name__ == "__main__":
    main()
