"""The command of `kvqueue work` in the tests: it handles one item, as the programs of the clients do. The protocol is in test_clients.py.

Its lines go to the file descriptor OUT, since the standard output of a command is not read. What was handled before is a file in the directory SEEN.
"""

import json
import os
import signal
import sys
import time

wanted = json.load(sys.stdin)
number, attempt = wanted["n"], os.environ["KVQUEUE_ATTEMPT"]


def say(word):
    os.write(int(os.environ["OUT"]), f"{word} {number} {attempt}\n".encode())


def fail(code, reason):
    print(reason, file=sys.stderr)
    sys.exit(code)


def stopped():
    # Such a handler waits until it is stopped.
    if wanted.get("do") in ("progress", "until lost"):
        say("end")
    fail(1, "stopped")


say("begin")
signal.signal(signal.SIGTERM, lambda *_: stopped())
if wanted.get("do") in ("progress", "until lost"):
    time.sleep(60)
time.sleep(wanted.get("sleep", 0) + wanted.get("block", 0))
mark = os.path.join(os.environ["SEEN"], str(number))
is_first = not os.path.exists(mark)
open(mark, "w").close()
what = wanted.get("do")
if what == "dead":
    fail(65, "never")
if what == "fail":
    fail(1, "always")
if what == "retry" and is_first:
    fail(1, "once more")
if what == "release" and is_first:
    fail(75, "released")
if what == "throttle" and is_first:
    fail(76, "slow down")
say("end")
