"""The program of the tests for Python: the protocol is in test_clients.py."""

import asyncio
import json
import logging
import os
import sys
import time

from kvqueue_worker import ApiError, Client, Dead, ItemView, NewItem, Release, Retry, Throttle, work, work_async

URLS = os.environ["URLS"].split()
CA_FILE = os.environ.get("CA_FILE")
seen = set()


def say(*words):
    # One call for each line: threads say something at the same time.
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


class NoText(Exception):
    def __str__(self):
        raise TypeError("no text")


# What handlers do wrong. The fake daemon accepts only what a daemon does.
WRONG = {
    "half a pair": lambda: ValueError("x" * 999 + "\udcff"),
    "dead with half a pair": lambda: Dead("\ud83d"),
    "no text": NoText,
    "not a number": lambda: Retry("x", after=float("nan")),
    "text for a number": lambda: Retry("x", after="five seconds"),
}


# What handlers return.
RESULTS = {"text": "r\u00e9sultat", "bytes": b"\xff\x00", "empty": "", "too long": "x" * 90_001, "long": "x" * 90_000, "half a pair": "\udcff", "other": 7}


def end(item, wanted):
    is_first = wanted["n"] not in seen
    seen.add(wanted["n"])
    what = wanted.get("do")
    if what == "dead":
        raise Dead("never")
    if what == "key":
        raise Dead(item.key.decode())
    if what == "fail":
        raise ValueError("always")
    if what == "retry" and is_first:
        raise Retry("once more", after=0)
    if what == "release" and is_first:
        raise Release
    if what == "throttle" and is_first:
        raise Throttle("slow down", after=0.5, scope="queue")
    if what == "exit":
        sys.exit("the handler ends the program")
    if what == "result":
        say("end", wanted["n"], item.attempt)
        return RESULTS[wanted["result"]]
    if what in WRONG:
        raise WRONG[what]()
    say("end", wanted["n"], item.attempt)
    return None


def handle(item):
    wanted = item.json()
    say("begin", wanted["n"], item.attempt)
    if wanted.get("do") == "progress":
        item.report_progress(10)
        item.report_progress(50.5, "half \u00e4" + "x" * 300)
        if not item.cancelled.wait(20) or not item.should_stop():
            raise Dead("it was not cancelled")
    if wanted.get("do") == "until lost" and not item.lease_lost.wait(20):
        raise Dead("its lease is not lost")
    time.sleep(wanted.get("sleep", 0) + wanted.get("block", 0))
    return end(item, wanted)


async def handle_async(item):
    wanted = item.json()
    say("begin", wanted["n"], item.attempt)
    if wanted.get("do") == "progress":
        item.report_progress(10)
        item.report_progress(50.5, "half \u00e4" + "x" * 300)
    if wanted.get("do") in ("until lost", "progress"):
        try:
            await asyncio.sleep(20)
            raise Dead("its lease is not lost")
        finally:
            end(item, wanted)
    await asyncio.sleep(wanted.get("sleep", 0))
    time.sleep(wanted.get("block", 0))
    return end(item, wanted)


def push():
    wanted = json.load(sys.stdin)
    with Client(URLS, ca_file=CA_FILE) as client:
        if "item" in wanted:
            pushed = client.push(wanted["queue"], wanted["item"])
        else:
            pushed = client.push_many(wanted["queue"], [NewItem(**item) for item in wanted["items"]], wanted.get("key"))
        say(json.dumps(vars(pushed)))


def call():
    wanted = json.load(sys.stdin)
    if "after" in wanted["options"]:
        wanted["options"]["after"] = [(queue, id) if queue else id for queue, id in wanted["options"]["after"]]
    with Client(URLS, ca_file=CA_FILE) as client:
        try:
            answer = getattr(client, wanted["method"])(wanted["queue"], *wanted["arguments"], **wanted["options"])
            answer = list(answer) if hasattr(answer, "__next__") else answer
        except ApiError as error:
            answer = {"error": error.code, "message": str(error)}
    if isinstance(answer, ItemView):
        result, progress = answer.result, answer.progress
        answer = {
            "state": answer.state, "outcome": answer.outcome, "has_ended": answer.has_ended, "attempts": answer.attempts,
            "result": None if result is None else result.decode("latin-1"),
            "progress": progress and [progress.percent, progress.message],
        }
    say(json.dumps(answer))


def main():
    logging.basicConfig()
    if sys.argv[1:] == ["push"]:
        return push()
    if sys.argv[1:] == ["call"]:
        return call()
    options = {
        "concurrency": int(os.environ.get("CONCURRENCY", "1")),
        "batch": int(os.environ.get("BATCH", "100")),
        "lease": float(os.environ["LEASE"]) if "LEASE" in os.environ else None,
        "wait": float(os.environ.get("WAIT", "20")),
        "ca_file": CA_FILE,
    }
    if sys.argv[1:] == ["async"]:
        asyncio.run(work_async(URLS, os.environ["QUEUE"], handle_async, **options))
    else:
        work(URLS, os.environ["QUEUE"], handle, **options)
    return None


try:
    main()
except ApiError as refused:
    sys.exit(f"refused: {refused}")
