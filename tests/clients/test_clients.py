"""The clients of clients/ against real daemons, each with the same tests.

    KVQUEUE=PROGRAM [COUNT=10000] python3 test_clients.py CLIENT [unittest's arguments]

CLIENT is python, asyncio, node or go, or work: the worker of the program, `kvqueue work`, with those tests that are about workers. COUNT is the number of items that are handled while daemons are killed.

A worker program of each language handles items that are JSON: {"n": NUMBER}, and perhaps "sleep" and "block" (in
seconds, of which "block" keeps an event loop from running), and "do": "dead", "fail", "key" (a dead letter whose reason is the item's key), or "retry", "release" or "throttle" the first
time, "result" (it returns the one that "result" names), or "progress" (it reports some, and waits until it is cancelled). It prints "begin N
ATTEMPT", and "end N ATTEMPT" if the item is done or was cancelled. With the argument "push" it pushes what its standard input has; with
"call" it calls the method of the client that its standard input names, and prints what that returns.
"""

import collections
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.request

import harness
from harness import Database, FakeDaemon, Gateway, Imitation, Program, lease_id, push, until

NAME = sys.argv.pop(1) if __name__ == "__main__" else "python"
KEYED = "keyed"
QUEUES = ["outcomes", "idle", "slow", "stop", "long", "lost", "reached/by", "pushed", "members", "called back", "scheduled", "json", "named"]
HISTORY = ["results", "progress"]
# The tests of `kvqueue work`. The others push, ask for items, or test what only clients do (docs/workers/loop.md). The one
# about TLS has a certificate that is its own authority, which rustls refuses.
WORK = [
    "outcomes", "items_are_handled_while_daemons_are_killed", "items_are_handled_once_behind_a_gateway_with_faults",
    "a_stop_of_an_idle_worker_is_quick", "a_revoked_token_ends_the_worker", "a_handler_longer_than_the_lease_keeps_it",
    "a_worker_that_lost_its_lease_goes_on", "a_worker_tells_its_name",
    "items_that_come_after_a_long_wait_are_handled", "a_lease_whose_answer_comes_late_is_extended_at_once",
    "a_token_that_ends_with_a_newline_works",
    "the_next_daemon_is_asked_after_one_that_stops", "an_acknowledgement_has_at_most_100_outcomes",
    "a_failing_acknowledgement_holds_up_no_other_lease", "a_request_that_hangs_holds_up_no_other_lease",
    "the_acknowledgements_of_a_stop_go_to_the_daemon_that_works",
    "an_answer_of_another_program_does_not_end_the_worker", "a_daemon_that_is_read_only_loses_no_lease_and_the_next_one_is_asked",
    "a_refused_request_for_items_ends_the_worker_after_its_items", "a_worker_that_polls_finds_a_new_item_soon",
]


def unfinished(database, queue):
    """How many items are not finished, by their states."""
    states = database.states(queue)
    return {state: states[state] for state in ("ready", "waiting", "running", "dead") if states[state] > 0}


class ClientTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.database = Database(*QUEUES, keyed=KEYED, history=HISTORY)
        cls.addClassCleanup(cls.database.close)
        cls.daemon = cls.database.daemon()
        cls.addClassCleanup(cls.daemon.kill)

    def setUp(self):
        if NAME == "work" and self._testMethodName.removeprefix("test_") not in WORK:
            self.skipTest("it is not about workers")

    def program(self, urls, queue, **options):
        program = Program(NAME, urls, queue, **options)
        self.addCleanup(program.close)
        return program

    def test_outcomes(self):
        words = [None, "retry", "release", "dead", "fail", None, "throttle"]
        self.database.push("outcomes", *({"n": n, "do": word} for n, word in enumerate(words)))
        program = self.program([self.daemon.url], "outcomes", concurrency=2, batch=2)
        until(lambda: program.numbers() == {0, 1, 2, 5, 6} and len(self.database.dead("outcomes")) == 2, "not all are handled", program)
        self.assertEqual(program.stop(), 0, program.said)
        begun = collections.Counter()
        for (number, _), times in program.begun.items():
            begun[number] += times
        self.assertEqual(begun, {0: 1, 1: 2, 2: 2, 3: 1, 4: 3, 5: 1, 6: 2})
        self.assertEqual(program.begun[2, 1], 2, "a release spends no attempt")
        self.assertEqual(program.begun[6, 1], 2, "a throttle spends no attempt")
        reasons = {letter["reason"] for letter in self.database.dead("outcomes")}
        self.assertEqual(len(reasons), 2)
        self.assertTrue(any("never" in reason for reason in reasons) if NAME == "work" else "never" in reasons, reasons)
        self.assertTrue(any("always" in reason for reason in reasons), reasons)

    def test_items_are_handled_while_daemons_are_killed(self):
        # A command that starts takes longer than a call.
        count = int(os.environ.get("COUNT", "600" if NAME == "work" else "2000"))
        # Each expired lease spends one.
        database = Database("killed", attempts=100, lease="4s")
        self.addCleanup(database.close)
        daemons = [database.daemon(), database.daemon()]
        for daemon in daemons:
            self.addCleanup(daemon.kill)
        database.push("killed", *({"n": n, "sleep": 0.01} for n in range(count)))
        program = self.program([daemon.url for daemon in daemons], "killed", concurrency=4, batch=20)
        for n in range(count // 300):
            # It goes on with the other daemon.
            done = min(count, len(program.ended) + 150)
            until(lambda done=done: len(program.ended) >= done, "they are not handled", program)
            killed = daemons if n % 3 == 2 else [daemons[n % 2]]
            for daemon in killed:
                daemon.kill()
            for daemon in killed:
                daemon.start()
        until(lambda: len(program.numbers()) == count, "not all are handled", program)
        # Items whose lease has expired are handled again.
        until(lambda: not unfinished(database, "killed"), "not all are acknowledged", program)
        self.assertEqual(program.stop(), 0, program.said)
        if count > 2000:
            repeated = sum(1 for _, attempt in program.ended if attempt > 1)
            print(f"{count} items, {count // 300} kills, {repeated} handled again after an expired lease", file=sys.stderr)
        self.assertEqual(unfinished(database, "killed"), {})
        # An item is handled again only if its lease expired, which spends an attempt.
        self.assertEqual([key for key, times in program.ended.items() if times > 1], [])

    def test_items_are_handled_once_behind_a_gateway_with_faults(self):
        # A lease whose answer is lost expires, which spends an attempt.
        database = Database("behind", attempts=100, lease="4s")
        self.addCleanup(database.close)
        daemon = database.daemon()
        self.addCleanup(daemon.kill)
        gateway = Gateway(daemon.port)
        self.addCleanup(gateway.close)
        program = self.program([gateway.url], "behind", concurrency=2, batch=2, wait=0.2)
        count, wanted = 0, {(kind, fault) for kind in ("lease", "acknowledge") for fault in Gateway.FAULTS}
        # The faults come in turn, so a few more items meet the ones that are missing.
        while not wanted <= set(gateway.met) and count < 200:
            database.push("behind", *({"n": n} for n in range(count, count + 4)))
            count += 4
            until(lambda: len(program.numbers()) == count, "not all are handled", program)
        self.assertLessEqual(wanted, set(gateway.met))
        until(lambda: not unfinished(database, "behind"), "not all are acknowledged", program)
        self.assertEqual(program.stop(), 0, program.said)
        handled = collections.Counter(number for (number, _), times in program.begun.items() for _ in range(times))
        self.assertEqual([number for number, times in handled.items() if times > 1], [], "an acknowledged item was handled again")
        self.assertEqual(unfinished(database, "behind"), {})

    def test_a_stop_finishes_running_items_and_releases_the_others(self):
        self.database.push("stop", *({"n": n, "sleep": 0.01} for n in range(20)))
        program = self.program([self.daemon.url], "stop", concurrency=2)
        until(lambda: len(program.ended) == 20, "not all are handled", program)
        # The average of the first ones lets it lease many of these ahead.
        self.database.push("stop", *({"n": n, "sleep": 1.5} for n in range(20, 30)))
        until(lambda: len(program.begun) == 22, "nothing is running", program)
        self.assertEqual(self.database.states("stop")["running"], 10)
        self.assertEqual(program.stop(), 0, program.said)
        self.assertEqual(program.begun, program.ended)
        self.assertEqual(len(program.begun), 22)
        states = self.database.states("stop")
        self.assertEqual((states["ready"], states["running"]), (8, 0))
        other = self.program([self.daemon.url], "stop", concurrency=8)
        until(lambda: len(other.ended) == 8, "the released items are not handled", other)
        self.assertEqual({attempt for _, attempt in other.ended}, {1})
        self.assertEqual(other.stop(), 0, other.said)

    def test_items_behind_a_slow_one_go_to_another_worker(self):
        self.database.push("slow", *({"n": n, "sleep": 0.01} for n in range(20)))
        program = self.program([self.daemon.url], "slow")
        until(lambda: len(program.ended) == 20, "not all are handled", program)
        # The average of the first ones lets it lease all of these at once.
        self.database.push("slow", {"n": 20, "sleep": 20}, *({"n": n} for n in range(21, 25)))
        until(lambda: (20, 1) in program.begun, "nothing is running", program)
        self.assertEqual(self.database.states("slow")["running"], 5)
        other = self.program([self.daemon.url], "slow")
        until(lambda: len(other.ended) == 4, "they are not handled", other)
        self.assertNotIn(20, program.numbers(), "the test is too slow")
        self.assertEqual(other.ended, {(n, 1): 1 for n in range(21, 25)})
        self.assertEqual(other.stop(), 0, other.said)
        program.signal(signal.SIGTERM)
        # A second signal ends it at once.
        time.sleep(0.5)
        program.signal(signal.SIGTERM)
        self.assertNotEqual(program.wait(), 0)

    def test_a_stop_of_an_idle_worker_is_quick(self):
        self.database.push("idle", {"n": 1})
        program = self.program([self.daemon.url], "idle")
        until(lambda: program.ended, "it is not handled", program)
        began = time.monotonic()
        self.assertEqual(program.stop(), 0, program.said)
        self.assertLess(time.monotonic() - began, 5)

    def test_a_revoked_token_ends_the_worker(self):
        database = Database("a/b", settings="")
        self.addCleanup(database.close)
        daemon = database.daemon()
        self.addCleanup(daemon.kill)
        none = self.program([daemon.url], "a/b")
        self.assertNotEqual(none.wait(), 0)
        missing, other_queue, revoked = {
            "work": (b"a token is needed", b"is for the queues a/*", b"is revoked"),
        }.get(NAME, (b"kvqueue token new NAME --scope work --queue a/b", b"403", b"401"))
        self.assertIn(missing, none.said)
        token = database.command("token", "new", "w", "--scope", "work", "--queue", "a/*").strip()
        other = self.program([daemon.url], "b", token=token)
        self.assertNotEqual(other.wait(), 0)
        self.assertIn(other_queue, other.said)
        program = self.program([daemon.url], "a/b", token=token, wait=1)
        database.push("a/b", {"n": 1})
        until(lambda: program.ended, "nothing is handled", program)
        database.command("token", "revoke", "w")
        self.assertNotEqual(program.wait(), 0)
        self.assertIn(revoked, program.said)
        if NAME != "work":
            self.assertIn(b"refuses the token kvq_", program.said)
        self.assertNotIn(token.encode(), program.said, "it prints the secret")

    def test_a_handler_longer_than_the_lease_keeps_it(self):
        # The handler also blocks the thread of an event loop.
        self.database.push("long", {"n": 1, "block": 6}, {"n": 2, "sleep": 6})
        program = self.program([self.daemon.url], "long", lease=2, concurrency=2)
        until(lambda: program.numbers() == {1, 2}, "they are not handled", program)
        self.assertEqual(program.stop(), 0, program.said)
        self.assertEqual(program.begun, {(1, 1): 1, (2, 1): 1})
        self.assertEqual(self.database.states("long")["running"], 0)

    def test_a_worker_that_lost_its_lease_goes_on(self):
        self.database.push("lost", {"n": 1, "sleep": 0.5})
        program = self.program([self.daemon.url], "lost", lease=1)
        until(lambda: program.begun, "nothing is running", program)
        program.signal(signal.SIGSTOP)
        other = self.program([self.daemon.url], "lost", lease=1)
        until(lambda: other.numbers() == {1}, "the lease does not expire", other)
        self.assertEqual(other.stop(), 0, other.said)
        self.assertEqual(other.ended, {(1, 2): 1})
        program.signal(signal.SIGCONT)
        self.database.push("lost", {"n": 2})
        until(lambda: 2 in program.numbers(), "it does not go on", program)
        self.assertEqual(program.stop(), 0, program.said)
        self.assertRegex(program.said, b"lease_lost" if NAME == "work" else b"queue lost: lease [0-9a-f-]+ expired")
        states = self.database.states("lost")
        self.assertEqual((states["ready"], states["running"], states["dead"]), (0, 0, 0))

    def test_a_unix_socket_and_tls(self):
        tls = harness.certificate(self.database.path)
        local = self.database.daemon(listen=f"unix:{self.database.path}/http.sock")
        self.addCleanup(local.kill)
        secure = self.database.daemon(tls=tls)
        self.addCleanup(secure.kill)
        for number, (url, options) in enumerate([(local.url, {}), (secure.url, {"ca_file": tls[0]})]):
            self.database.push("reached/by", {"n": number})
            program = self.program([url], "reached/by", **options)
            until(lambda number=number, program=program: program.numbers() == {number}, f"{url} is not used", program)
            self.assertEqual(program.stop(), 0, program.said)
        program = self.program([secure.url], "reached/by")
        until(lambda: b"certificate" in program.said, "an unknown authority is trusted", program)
        self.assertEqual(program.stop(), 0, program.said)

    def test_pauses_after_refusals(self):
        busy = {"error": {"code": "busy", "message": "busy at the moment", "fix": "retry later"}}
        imitation = Imitation((429, {"Retry-After": "1"}, busy), (503, {}, busy), (502, {}, "no JSON of a daemon"))
        self.addCleanup(imitation.close)
        program = self.program([imitation.url], "q")
        until(lambda: len(imitation.times) >= 4, "it does not go on", program)
        self.assertGreaterEqual(imitation.times[1] - imitation.times[0], 0.99)
        # From now on every answer comes at once and has no items, as those of a daemon that stops.
        time.sleep(3)
        self.assertLess(len(imitation.times), 20)
        self.assertEqual(program.stop(), 0, program.said)

    def test_keys(self):
        pushed = push(NAME, [self.daemon.url], {"queue": KEYED, "items": [{"payload": '{"n": 1, "do": "key"}', "key": "tenant-7/\u00e4"}]})
        self.assertEqual(pushed["pushed"], 1)
        program = self.program([self.daemon.url], KEYED)
        until(lambda: len(self.database.dead(KEYED)) == 1, "it is not handled", program)
        self.assertEqual(self.database.dead(KEYED)[0]["reason"], "tenant-7/\u00e4")
        self.assertEqual(program.stop(), 0, program.said)

    def test_push(self):
        urls = [f"http://127.0.0.1:{harness.free_port()}", self.daemon.url]
        items = [
            {"payload": "\u00e4", "unique": "u", "attributes": {"customer": "ann"}, "content_type": "text/plain", "ttl": 3600},
            {"payload": "later", "delay": 3600},
            {"payload": "again", "unique": "u"},
        ]
        wanted = {"queue": "pushed", "items": items, "key": "k"}
        pushed = push(NAME, urls, wanted)
        self.assertEqual((pushed["pushed"], pushed["already"]), (2, False))
        self.assertEqual(pushed["effects"], ["added", "added", "duplicate"])
        self.assertEqual(pushed["ids"][0], pushed["ids"][2])
        again = push(NAME, urls, wanted)
        self.assertEqual((again["pushed"], again["already"], again["ids"][:2]), (0, True, pushed["ids"][:2]))
        item = self.database.command("peek", "pushed", "-k", "5", "--json")
        for text in ('"\u00e4"', '"customer":"ann"', '"text/plain"', '"expires_at"'):
            self.assertIn(text, item)
        states = self.database.states("pushed")
        self.assertEqual((states["ready"], states["waiting"]), (1, 1))


    def payloads(self, queue):
        lines = self.database.command("peek", queue, "-k", "20", "--json").splitlines()
        return [json.loads(line)["payload"] for line in lines]

    def test_an_object_is_pushed_as_json(self):
        urls, mail = [self.daemon.url], {"to": "<\u00e4>", "subject": "hi", "lines": [1, None]}
        if NAME != "go":
            # Go's push takes items alone.
            self.assertEqual(push(NAME, urls, {"queue": "json", "item": {"to": "ann"}})["pushed"], 1)
            self.assertEqual(push(NAME, urls, {"queue": "json", "item": "text"})["pushed"], 1)
            self.assertEqual(self.payloads("json"), ['{"to":"ann"}', "text"])
            for item in (["a", "b"], 5, None):
                self.assertRegex(harness.refusal(NAME, urls, {"queue": "json", "item": item}), "write ")
        before = self.payloads("json")
        push(NAME, urls, {"queue": "json", "items": [{"payload": mail, "ttl": 60}, {"payload": [1, "x"]}, {"payload": ""}]})
        first, second, third = self.payloads("json")[len(before):]
        self.assertEqual((json.loads(first), second, third), (mail, '[1,"x"]', ""))
        self.assertIn("\u00e4", first)

    def test_a_push_that_is_written_wrong_is_refused_with_what_to_write(self):
        def refused(**item):
            return harness.refusal(NAME, [self.daemon.url], {"queue": "json", "items": [item]})

        # In Go an item without a payload is an empty one.
        for payload in (5, True) if NAME == "go" else (5, None, True):
            self.assertRegex(refused(payload=payload), "the payload is .*write ")
        if NAME == "go":
            # Its compiler refuses the rest.
            return
        self.assertRegex(refused(payload="x", dealy=5), "dealy")
        self.assertRegex(refused(payload="x", delay="5s"), "delay is .*write (milli)?seconds")
        self.assertRegex(refused(payload="x", ttl="1h"), "ttl is .*write (milli)?seconds")
        self.assertRegex(refused(payload="x", at="2030-01-01T00:00:00Z"), "at is .*write a [dD]ate")

    def test_a_worker_tells_its_name(self):
        program = self.program([self.daemon.url], "named")

        def names():
            with urllib.request.urlopen(f"{self.daemon.url}/api/v1/workers?queue=named") as answer:
                return [each["user_agent"] for each in json.load(answer)["workers"]]

        until(names, "no worker waits", program)
        language = "python" if NAME == "asyncio" else NAME
        host = socket.gethostname()
        self.assertEqual(names(), [f"kvqueue-{language}/0.1.0 {host}/{program.process.pid}"])
        self.assertEqual(program.stop(), 0, program.said)

    def test_unique_keys_for_a_time_and_pushes_that_replace(self):
        def push_one(payload, **options):
            return push(NAME, [self.daemon.url], {"queue": "pushed", "items": [{"payload": payload, **options}]})

        first = push_one("1", unique="debounced", delay=3600)
        second = push_one("2", unique="debounced", delay=7200, replace=True)
        self.assertEqual((second["effects"], second["ids"]), (["replaced"], first["ids"]))
        item = self.database.command("item", "show", "pushed", first["ids"][0], "--json")
        self.assertIn('"payload":"2"', item)
        first = push_one("3", unique="for a time", unique_for=3600)
        self.assertIn('"unique_until"', self.database.command("item", "show", "pushed", first["ids"][0], "--json"))
        second = push_one("4", unique="for a time", unique_for=3600)
        self.assertEqual((second["effects"], second["ids"]), (["duplicate"], first["ids"]))
        # It has not been done, so its key is free.
        self.database.command("item", "cancel", "pushed", first["ids"][0])
        self.assertEqual(push_one("5", unique="for a time", unique_for=3600)["effects"], ["added"])

    def call(self, method, queue, *arguments, **options):
        return harness.call(NAME, [self.daemon.url], method, queue, *arguments, **options)

    def push_items(self, queue, *items, **options):
        """Their ids."""
        wanted = {"queue": queue, "items": [{"payload": json.dumps(item), **options} for item in items]}
        return push(NAME, [self.daemon.url], wanted)["ids"]

    def test_results(self):
        wanted = {"text": "r\u00e9sultat".encode().decode("latin-1"), "bytes": "\xff\x00", "empty": "", "too long": None, "half a pair": "?", "other": None}
        names = [*wanted, None]
        ids = self.push_items("results", *({"n": n, "do": name and "result", "result": name} for n, name in enumerate(names)))
        program = self.program([self.daemon.url], "results")
        for id, name in zip(ids, names):
            item = self.call("wait_item", "results", id, wait=30)
            self.assertEqual((item["state"], item["outcome"], item["has_ended"], item["attempts"]), ("finished", "done", True, 1), name)
            found, expected = item["result"], wanted.get(name)
            # What stands for half a pair, and whether there can be one, depends on the language.
            self.assertTrue(found == expected or name == "half a pair" and found in ("?", "\xef\xbf\xbd"), (name, found))
        self.assertIn(b"its result has 90001 bytes", program.said)
        self.assertEqual(program.stop(), 0, program.said)

    def test_progress_and_a_cancellation_of_a_running_item(self):
        # The second item is of the same lease, and is done.
        running, other = self.push_items("progress", {"n": 1, "do": "progress"}, {"n": 2, "sleep": 4})
        program = self.program([self.daemon.url], "progress", concurrency=2)
        shown = {}

        def has_progress():
            shown.update(self.call("show_item", "progress", running))
            return shown["progress"] is not None

        until(has_progress, "it shows no progress", program)
        self.assertEqual((shown["state"], shown["has_ended"], shown["progress"][0]), ("running", False, 50))
        self.assertEqual(shown["progress"][1], "half \u00e4" + "x" * 193)
        self.assertEqual(self.call("wait_item", "progress", running, wait=0.2)["state"], "running")
        self.assertEqual(self.call("cancel_item", "progress", running), "running")
        cancelled = time.monotonic()
        until(lambda: (1, 1) in program.ended, "its handler is not stopped", program)
        self.assertLess(time.monotonic() - cancelled, 2)
        self.assertEqual(self.call("show_item", "progress", running)["outcome"], "cancelled")
        self.assertEqual(self.call("wait_item", "progress", other)["outcome"], "done")
        self.assertEqual(self.call("cancel_item", "progress", running)["error"], "not_found")
        self.push_items("progress", {"n": 3})
        until(lambda: program.numbers() == {1, 2, 3}, "it does not go on", program)
        self.assertEqual(program.stop(), 0, program.said)
        self.assertEqual(unfinished(self.database, "progress"), {})
        self.assertEqual(set(program.begun), {(1, 1), (2, 1), (3, 1)})
        self.assertNotIn(b"failed", program.said)

    def test_waiting_for_an_item_without_a_history(self):
        (id,) = self.push_items("pushed", {"n": 1}, delay=3600)
        self.assertEqual(self.call("wait_item", "pushed", id, wait=0.2)["state"], "scheduled")
        self.database.command("item", "cancel", "pushed", id)
        self.assertEqual(self.call("wait_item", "pushed", id)["error"], "not_found")

    def test_a_batch_calls_back(self):
        batch = self.call("new_batch", "called back", json.dumps({"n": 7}), deadline=3600)
        self.push_items("members", {"n": 1}, {"n": 2}, batch=batch)
        shown = self.call("show_batch", "called back", batch)
        self.assertEqual((shown["id"], shown["state"], shown["counts"]["members"], shown["counts"]["open"]), (batch, "open", 2, 2))
        self.assertEqual(shown["then"]["payload"], '{"n": 7}')
        self.assertIn("deadline", shown)
        self.assertEqual([each["id"] for each in self.call("list_batches", "called back")], [batch])
        self.assertEqual([self.call("commit_batch", "called back", batch) for _ in range(2)], [True, False])
        workers = [self.program([self.daemon.url], name) for name in ("members", "called back")]
        until(lambda: workers[1].numbers() == {7}, "it does not call back", workers[1])
        self.assertEqual(workers[0].numbers(), {1, 2})
        self.assertEqual([worker.stop() for worker in workers], [0, 0])
        self.assertEqual(self.call("show_batch", "called back", batch)["error"], "not_found")
        other = self.call("new_batch", "called back", "x")
        self.assertNotIn("deadline", self.call("show_batch", "called back", other))
        self.push_items("members", {"n": 3}, batch=other)
        self.assertEqual(self.call("cancel_batch", "called back", other)["members"], 1)
        self.assertEqual(self.call("list_batches", "called back"), [])

    def test_an_item_is_pushed_after_others(self):
        (id,) = self.push_items("members", {"n": 1})
        after = [["members", id], ["", "0" * 24]]
        self.assertEqual(self.call("push_after", "called back", "x", after=after)["error"], "missing")
        waits = self.call("push_after", "called back", json.dumps({"n": 8}), after=after, missing_ok=True)
        self.assertEqual((waits["waits_for"], waits["ended"], waits["gone"]), (1, {}, 1))
        self.assertEqual(self.call("show_batch", "called back", waits["id"])["counts"]["open"], 1)
        self.database.command("item", "cancel", "members", id)
        worker = self.program([self.daemon.url], "called back")
        until(lambda: worker.numbers() == {8}, "it is not pushed", worker)
        self.assertEqual(worker.stop(), 0)

    def test_schedules(self):
        queue, name = "scheduled", "daily/\u00e4"
        options = {"zone": "Europe/Berlin", "content_type": "text/plain", "attributes": {"kind": "report"}, "overlap": "skip", "jitter": 90}
        nowhere = f"nowhere {os.getpid()}"
        self.assertEqual(self.call("put_schedule", nowhere, name, "", cron="0 3 * * *")["error"], "no_queue")
        self.assertEqual(self.call("put_schedule", nowhere, name, "", cron="0 3 * * *", create=True)["effect"], "created")
        put = self.call("put_schedule", queue, name, '{"n": 1}', cron="0 3 * * *", **options)
        self.assertEqual(put["effect"], "created")
        self.assertIn("03:00", put["description"])
        self.assertIsNotNone(put["next"])
        self.assertEqual(self.call("put_schedule", queue, name, '{"n": 1}', cron="0 3 * * *", **options)["effect"], "unchanged")
        self.call("put_schedule", queue, "often", "", every=1800.5, missed="all", missed_max=5, missed_window=60)
        self.assertEqual([each["name"] for each in self.call("list_schedules", queue)], [name, "often"])
        shown = self.call("show_schedule", queue, name)
        self.assertEqual((shown["state"], len(shown["times"]), shown["definition"]["payload"]), ("active", 5, '{"n": 1}'))
        self.assertEqual((shown["definition"]["attributes"], shown["definition"]["zone"]), ({"kind": "report"}, "Europe/Berlin"))
        item = self.call("fire_schedule", queue, name)
        self.assertEqual(self.call("fire_schedule", queue, name)["error"], "overlaps")
        program = self.program([self.daemon.url], queue)
        until(lambda: program.numbers() == {1}, "the item is not handled", program)
        self.assertEqual(program.stop(), 0, program.said)
        self.assertEqual([(each["outcome"], each["item"]) for each in self.call("schedule_history", queue, name)], [("fired_by_hand", item)])
        self.call("pause_schedule", queue, name)
        self.assertEqual(self.call("show_schedule", queue, name)["state"], "paused")
        self.call("resume_schedule", queue, name)
        self.call("resume_schedule", queue, "often", restart=True)
        self.assertEqual(self.call("show_schedule", queue, name)["state"], "active")
        self.call("remove_schedule", queue, name)
        self.call("remove_schedule", queue, "often", force=True)
        self.assertEqual(self.call("list_schedules", queue), [])
        self.assertEqual(self.call("pause_schedule", queue, name)["error"], "not_found")

    def test_a_refusal_names_the_scope(self):
        database = Database("q", settings="")
        self.addCleanup(database.close)
        daemon = database.daemon()
        self.addCleanup(daemon.kill)
        token = database.command("token", "new", "none", "--scope", "work", "--queue", "other").strip()
        for method, arguments, scope in [
            ("show_item", ["000000000000000000000000"], "read"), ("cancel_item", ["000000000000000000000000"], "admin"),
            ("new_batch", ["x"], "push"), ("commit_batch", ["q-" + "0" * 32], "push"), ("cancel_batch", ["q-" + "0" * 32], "admin"),
            ("list_schedules", [], "read"), ("fire_schedule", ["x"], "admin"),
        ]:
            found = harness.call(NAME, [daemon.url], method, "q", *arguments, token=token)
            self.assertEqual(found["error"], "forbidden")
            self.assertIn(f"--scope {scope} --queue q", found["message"], method)


@unittest.skipUnless(NAME in ("python", "node"), "there are two such examples")
class ExecWorkerTest(unittest.TestCase):
    """The examples of worker processes write lines that a daemon accepts."""

    def outcome(self, python, node):
        body = f"    raise {python}" if NAME == "python" else f"  throw {node};"
        return harness.exec_worker("exec_worker.py" if NAME == "python" else "exec_worker.js", body)

    def test_a_reason_is_short_text(self):
        for python, node in [
            ("ValueError('x' * 100_000)", "new Error('x'.repeat(100_000))"),
            ("Dead('\\udcff')", "new Dead('\\ud83d')"),
            ("OSError('x' * 999 + '\\udcff')", "new Error('x'.repeat(999) + '\\u{1f600}')"),
        ]:
            outcome = self.outcome(python, node)
            self.assertLessEqual(len(outcome["reason"]), 1000)
            self.assertNotRegex(outcome["reason"], "[\ud800-\udfff]")

    def test_a_pause_is_a_whole_number_of_at_most_a_year(self):
        for python, node, wanted in [("1.2345", "1234.5", (1234, 1235)), ("-1", "-1", (0,)), ("1e12", "1e15", (365 * 24 * 3_600_000,))]:
            outcome = self.outcome(f"Retry('x', after={python})", f"new Retry('x', {{ after: {node} }})")
            self.assertIn(outcome["after_ms"], wanted)
            self.assertIsInstance(outcome["after_ms"], int)

    def test_a_pause_that_is_none_is_left_out(self):
        for python, node in [
            ("Retry('x', after=float('nan'))", "new Retry('x', { after: NaN })"),
            ("OSError('x')", "Object.assign(new Error('x'), { after: 'x' })"),
        ]:
            outcome = self.outcome(python, node)
            self.assertEqual((outcome["outcome"], outcome.get("after_ms", "none")), ("retry", "none"))


class FakeDaemonTest(unittest.TestCase):
    """What a real daemon does too rarely."""

    def setUp(self):
        if NAME == "work" and self._testMethodName.removeprefix("test_") not in WORK:
            self.skipTest("it is about clients: they push, lease items ahead, or have handlers in their own process")

    def daemon(self, *leases, **options):
        daemon = FakeDaemon(*leases, **options)
        self.addCleanup(daemon.close)
        return daemon

    def program(self, *daemons, **options):
        program = Program(NAME, [daemon.url for daemon in daemons], "q", **options)
        self.addCleanup(program.close)
        return program

    def test_items_that_come_after_a_long_wait_are_handled(self):
        # The wait is longer than a lease, and longer than items that were leased ahead are kept.
        items = [{"n": n, "sleep": 0.02} for n in range(10)]
        daemon = self.daemon(items, length=5, on=lambda kind, _: kind == "lease" and time.sleep(6))
        program = self.program(daemon)
        until(lambda: len(daemon.outcomes()) == 10, "not all are handled", program)
        self.assertEqual(program.stop(), 0, program.said)
        self.assertEqual({each["outcome"] for each in daemon.outcomes().values()}, {"done"})

    def test_a_lease_whose_answer_comes_late_is_extended_at_once(self):
        daemon = self.daemon([{"n": 1, "sleep": 3}], length=6, late=3)
        program = self.program(daemon)
        until(lambda: 1 in daemon.outcomes(), "it is not handled", program)
        self.assertEqual(program.stop(), 0, program.said)
        self.assertLess(daemon.extended[0][1] - daemon.times[0], 4.5)

    def test_items_of_a_lease_that_has_expired_on_the_way_are_not_handled(self):
        daemon = self.daemon([{"n": 1}, {"n": 2}], length=1, late=2, on=lambda kind, _: kind == "extend" and (503, "stopping"))
        program = self.program(daemon)
        until(lambda: len(daemon.outcomes()) == 2, "they do not go back", program)
        self.assertEqual(program.stop(), 0, program.said)
        self.assertEqual({each["outcome"] for each in daemon.outcomes().values()}, {"release"})
        self.assertFalse(program.begun)

    def test_wrong_errors_of_handlers_are_outcomes(self):
        words = ["half a pair", "dead with half a pair", "no text", "not a number", "text for a number"]
        daemon = self.daemon([{"n": n, "do": word} for n, word in enumerate(words)])
        program = self.program(daemon)
        until(lambda: len(daemon.outcomes()) == len(words), "not all are handled", program)
        self.assertEqual(program.stop(), 0, program.said)
        self.assertEqual([daemon.outcomes()[n]["outcome"] for n in range(len(words))], ["retry", "dead", "retry", "retry", "retry"])
        for outcome in daemon.outcomes().values():
            self.assertNotRegex(outcome["reason"], "[\ud800-\udfff]")
            self.assertLessEqual(len(outcome["reason"]), 1000)
            self.assertIsInstance(outcome.get("after_ms", 0), int)

    def test_a_push_that_a_daemon_does_not_answer_goes_to_the_next_one(self):
        hung = threading.Event()
        self.addCleanup(hung.set)
        hanging, other = self.daemon(on=lambda *_: hung.wait(harness.LIMIT) and None), self.daemon()
        pushed = push(NAME, [hanging.url, other.url], {"queue": "q", "items": [{"payload": "x"}], "key": "k"})
        self.assertEqual((pushed["pushed"], len(hanging.times), len(other.times)), (1, 1, 1))

    def test_a_token_that_ends_with_a_newline_works(self):
        daemon = self.daemon([{"n": 1}])
        program = self.program(daemon, token="kvq_0123456789abcdef\r\n")
        until(lambda: 1 in daemon.outcomes(), "it is not handled", program)
        self.assertEqual(program.stop(), 0, program.said)
        self.assertEqual(daemon.tokens, {"Bearer kvq_0123456789abcdef"})

    def test_a_token_that_cannot_be_sent_ends_the_program(self):
        for token in "kvq_0123456789abcdef\nX", "kvq_0123456789abcd\u00e4f":
            program = self.program(self.daemon(), token=token)
            until(lambda program=program: program.process.poll() is not None, "it goes on")
            self.assertNotEqual(program.wait(), 0)
            self.assertIn(b"the token has a character", program.said)
            self.assertNotIn(b"0123456789abc", program.said, "it prints the secret")

    def test_a_worker_that_polls_finds_a_new_item_soon(self):
        daemon = self.daemon()
        # An answer at once, whatever the wait.
        daemon.has_waited.set()
        program = self.program(daemon, wait=0)
        time.sleep(6)
        daemon.leases["a"] = [{"n": 1}]
        added = time.monotonic()
        until(lambda: 1 in daemon.outcomes(), "it is not handled", program)
        self.assertLess(time.monotonic() - added, 2)
        self.assertEqual(program.stop(), 0, program.said)

    def test_the_next_daemon_is_asked_after_one_that_stops(self):
        stopping, other = self.daemon(), self.daemon([{"n": 1}])
        stopping.has_waited.set()
        program = self.program(stopping, other)
        until(lambda: 1 in {**stopping.outcomes(), **other.outcomes()}, "it is not handled", program)
        self.assertEqual(program.stop(), 0, program.said)

    @unittest.skipUnless(NAME == "node", "Node's leases are extended in a thread")
    def test_a_thread_extends_leases_also_if_a_tool_has_rewritten_the_functions(self):
        daemon = self.daemon([{"n": 1, "block": 2}], length=3)
        with tempfile.NamedTemporaryFile("w", suffix=".cjs") as hook:
            # As tools that measure coverage do: each function counts its calls.
            hook.write(
                "const { readFileSync } = require('fs');"
                "require('module')._extensions['.js'] = (module, file) => {"
                "  const text = readFileSync(file, 'utf8').replace(/\\) \\{$/gm, ') { counted();');"
                "  module._compile('const counted = () => {};' + text, file);"
                "};"
            )
            hook.flush()
            program = self.program(daemon, node_options=f"--require={hook.name}")
            until(lambda: 1 in daemon.outcomes(), "it is not handled", program)
        self.assertTrue(daemon.extended)
        self.assertEqual(program.stop(), 0, program.said)

    @unittest.skipUnless(NAME == "node", "Node's leases are extended in a thread")
    def test_a_bundle_is_refused_at_the_start(self):
        program = (harness.CLIENTS / "node" / "kvqueue-worker.js").read_text(encoding="utf-8")
        with tempfile.NamedTemporaryFile("w", suffix=".cjs", encoding="utf-8") as bundle:
            bundle.write(program + "\nwork('http://127.0.0.1:1', 'q', () => {});")
            bundle.flush()
            done = subprocess.run(["node", bundle.name], stderr=subprocess.PIPE)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn(b"has to be a file of its own", done.stderr)

    def test_an_acknowledgement_has_at_most_100_outcomes(self):
        daemon = self.daemon([{"n": n, "do": "dead"} for n in range(250)])
        program = self.program(daemon, concurrency=20)
        until(lambda: len(daemon.outcomes()) == 250, "not all are handled", program)
        self.assertEqual(program.stop(), 0, program.said)
        self.assertLessEqual(max(len(outcomes) for _, outcomes in daemon.acknowledged), 100)
        self.assertEqual(sum(len(outcomes) for _, outcomes in daemon.acknowledged), 250)

    def test_cancelled_items_are_not_begun_and_not_acknowledged(self):
        cancelled = [1, 2]
        daemon = self.daemon([{"n": 1, "do": "progress"}, {"n": 2}, {"n": 3}], length=3, on=lambda kind, _: kind == "extend" and {"cancelled": cancelled})
        program = self.program(daemon)
        until(lambda: 3 in daemon.outcomes(), "the other item is not handled", program)
        self.assertEqual(program.stop(), 0, program.said)
        self.assertEqual(set(program.begun), {(1, 1), (3, 1)})
        self.assertEqual({n: each["outcome"] for n, each in daemon.outcomes().items()}, {3: "done"})
        self.assertEqual(len(daemon.extended), 1)

    def test_a_lease_without_items_that_go_on_is_not_extended_further(self):
        # A task that sleeps is cancelled.
        leased = [{"n": 1, "block" if NAME == "asyncio" else "sleep": 4}]
        daemon = self.daemon(leased, length=2, on=lambda kind, _: kind == "extend" and {"cancelled": [1]})
        program = self.program(daemon)
        until(lambda: (1, 1) in program.ended, "it is not handled to the end", program)
        self.assertEqual(program.stop(), 0, program.said)
        self.assertEqual((len(daemon.extended), daemon.acknowledged), (1, []))

    def test_an_acknowledgement_tells_that_items_were_cancelled(self):
        leased = [{"n": 1, "do": "progress"}, {"n": 2}]
        daemon = self.daemon(leased, length=30, on=lambda kind, _: kind == "acknowledge" and {"cancelled": [1]})
        program = self.program(daemon, concurrency=2)
        until(lambda: (1, 1) in program.ended, "its handler is not stopped", program)
        self.assertEqual(program.stop(), 0, program.said)
        self.assertEqual(set(daemon.outcomes()), {2})

    def test_progress_is_sent_although_acknowledgements_extend_the_lease(self):
        quick = [{"n": n, "sleep": 0.3} for n in range(2, 40)]
        last = {"id": 1, "percent": 50.5, "message": "half \u00e4" + "x" * 193}
        daemon = self.daemon([{"n": 1, "do": "progress"}, *quick], length=3, on=lambda kind, _: kind == "extend" and last in daemon.reported and {"cancelled": [1]})
        program = self.program(daemon, concurrency=2)
        until(lambda: last in daemon.reported, "no daemon learns of it", program)
        self.assertLess(len(daemon.outcomes()), 20)
        reported = len(daemon.reported)
        until(lambda: (1, 1) in program.ended, "its handler is not stopped", program)
        self.assertEqual(program.stop(), 0, program.said)
        self.assertEqual(len(daemon.reported), reported)

    def test_progress_is_sent_again_if_its_extension_fails(self):
        failures = [(503, "unavailable"), (503, "unavailable")]
        daemon = self.daemon([{"n": 1, "do": "progress"}], length=3, on=lambda kind, _: kind == "extend" and failures and failures.pop())
        program = self.program(daemon)
        until(lambda: daemon.reported, "no daemon learns of it", program)
        self.assertEqual((daemon.reported[0]["percent"], failures), (50.5, []))

    def test_a_result_that_a_daemon_finds_too_long_is_left_out(self):
        refusals = [(413, "too_large")]
        leased = [{"n": 1, "do": "result", "result": "text"}]
        daemon = self.daemon(leased, on=lambda kind, _: kind == "acknowledge" and refusals and refusals.pop())
        program = self.program(daemon)
        until(lambda: 1 in daemon.outcomes(), "it is not acknowledged", program)
        self.assertEqual(daemon.outcomes()[1], {"id": 1, "outcome": "done"})
        self.assertEqual(program.stop(), 0, program.said)
        self.assertIn(b"its results are not kept", program.said)

    def test_long_results_go_in_several_requests(self):
        daemon = self.daemon([{"n": n, "do": "result", "result": "long"} for n in range(20)])
        program = self.program(daemon, concurrency=20)
        until(lambda: len(daemon.outcomes()) == 20, "not all are acknowledged", program)
        self.assertEqual(program.stop(), 0, program.said)
        self.assertEqual({len(each["result"]) for each in daemon.outcomes().values()}, {90_000})
        self.assertLessEqual(max(len(outcomes) for _, outcomes in daemon.acknowledged), 6)

    def test_a_failing_acknowledgement_holds_up_no_other_lease(self):
        failures = []

        def on(kind, lease):
            if (kind, lease) == ("acknowledge", "a") and len(failures) < 6:
                failures.append(lease)
                return 500, "unreadable"
            return None

        daemon = self.daemon([{"n": 1}], [{"n": 2, "sleep": 0.2}], on=on)
        program = self.program(daemon)
        until(lambda: len(daemon.outcomes()) == 2, "not all are acknowledged", program)
        self.assertEqual([lease for lease, _ in daemon.acknowledged], ["b", "a"])
        self.assertEqual(len(failures), 6)
        self.assertEqual(program.stop(), 0, program.said)

    def test_a_request_that_hangs_holds_up_no_other_lease(self):
        def on(kind, lease):
            if kind != "lease" and lease == "a":
                time.sleep(5)

        daemon = self.daemon([{"n": 1, "sleep": 4}], [{"n": 2, "sleep": 4}], length=3, on=on)
        program = self.program(daemon, concurrency=2)
        until(lambda: 2 in daemon.outcomes(), "it is not acknowledged", program)
        acknowledged, leased = time.monotonic(), daemon.times[0]
        self.assertEqual(daemon.outcomes()[2]["outcome"], "done")
        self.assertLess(next(at for lease, at in daemon.extended if lease == "b") - leased, 2)
        self.assertLess(acknowledged - leased, 6)
        self.assertNotIn(lease_id("b").encode(), program.said)

    def test_a_handler_learns_that_no_daemon_extends_its_lease(self):
        leased = [{"n": 1, "do": "until lost"}, {"n": 2}]
        daemon = self.daemon(leased, length=2, on=lambda kind, _: kind == "extend" and (503, "stopping"))
        program = self.program(daemon)
        until(lambda: len(daemon.outcomes()) == 2, "not all are acknowledged", program)
        until(lambda: program.ended == {(1, 1): 1}, "it did not learn that its lease is lost", program)
        # An outcome still counts if no daemon has noticed. A handler that is cancelled spends no attempt.
        self.assertEqual(daemon.outcomes()[1]["outcome"], "done" if NAME == "python" else "release")
        self.assertEqual(daemon.outcomes()[2]["outcome"], "release")
        self.assertEqual(program.said.count(f"lease {lease_id('a')} expired".encode()), 1)
        self.assertEqual(program.stop(), 0, program.said)

    def test_a_handler_learns_that_its_lease_expires_after_an_acknowledgement_has_extended_it(self):
        leased = [{"n": 1, "do": "until lost"}, {"n": 2, "sleep": 1}]
        daemon = self.daemon(leased, length=2, on=lambda kind, _: kind == "extend" and (503, "stopping"))
        program = self.program(daemon, concurrency=2)
        until(lambda: (1, 1) in program.ended, "it did not learn that its lease is lost", program)
        self.assertGreater(time.monotonic() - daemon.times[0], 2.5)
        self.assertEqual(program.said.count(f"lease {lease_id('a')} expired".encode()), 1)
        self.assertEqual(program.stop(), 0, program.said)

    def test_the_acknowledgements_of_a_stop_go_to_the_daemon_that_works(self):
        hung = threading.Event()
        self.addCleanup(hung.set)
        working, hanging = self.daemon([{"n": 1, "sleep": 2}]), self.daemon(on=lambda *_: hung.wait(harness.LIMIT) and None)
        program = self.program(working, hanging, concurrency=2)
        until(lambda: (1, 1) in program.begun and len(working.times) == 2, "nothing waits for items", program)
        self.assertEqual(program.stop(), 0, program.said)
        self.assertEqual((working.outcomes()[1]["outcome"], hanging.times), ("done", []))

    def test_a_stop_shortens_the_pause_of_an_acknowledgement(self):
        failures = []

        def on(kind, _):
            # The sixth pause is at least 1.6 s, the seventh 3.2 s.
            if kind == "acknowledge" and len(failures) < 7:
                failures.append(kind)
                return 500, "unreadable"
            return None

        daemon = self.daemon([{"n": 1}], on=on)
        program = self.program(daemon)
        until(lambda: len(failures) == 7, "it is not acknowledged", program)
        began = time.monotonic()
        self.assertEqual(program.stop(), 0, program.said)
        self.assertLess(time.monotonic() - began, 2.5)
        self.assertEqual(daemon.outcomes()[1]["outcome"], "done")

    def test_an_answer_of_another_program_does_not_end_the_worker(self):
        daemon = self.daemon([{"n": 1}])
        answers, answer = [(200, {}, {})], daemon.answer
        daemon.answer = lambda path, request: answers.pop() if answers else answer(path, request)
        program = self.program(daemon)
        until(lambda: 1 in daemon.outcomes(), "it is not handled", program)
        self.assertEqual(program.stop(), 0, program.said)

    def test_a_daemon_that_is_read_only_loses_no_lease_and_the_next_one_is_asked(self):
        refuses = lambda *_: (403, "read_only")
        reader, other = self.daemon(on=refuses), self.daemon([{"n": 1, "sleep": 2}], length=3)
        program = self.program(reader, other)
        until(lambda: 1 in other.outcomes(), "it is not acknowledged", program)
        self.assertEqual(program.stop(), 0, program.said)
        self.assertEqual(other.outcomes()[1]["outcome"], "done")
        if NAME == "work":
            return
        self.assertIn(b"403 read_only", program.said)
        pushed = push(NAME, [reader.url, other.url], {"queue": "q", "items": [{"payload": "x"}]})
        self.assertEqual(pushed["pushed"], 1)

    def test_a_refused_request_for_items_ends_the_worker_after_its_items(self):
        refused = threading.Event()

        def on(kind, _):
            if kind == "lease" and refused.is_set():
                return 404, "no_such_queue"
            return refused.set() if kind == "lease" else None

        daemon = self.daemon([{"n": 1, "sleep": 1}, {"n": 2}], on=on)
        program = self.program(daemon, concurrency=3)
        self.assertNotEqual(program.wait(), 0)
        self.assertIn(b"refused" if NAME == "work" else b"404", program.said)
        self.assertEqual({n: each["outcome"] for n, each in daemon.outcomes().items()}, {1: "done", 2: "done"})

    @unittest.skipUnless(NAME == "python", "only such a handler ends a thread and no event loop")
    def test_a_handler_that_exits_lets_the_others_finish(self):
        daemon = self.daemon([{"n": 1, "sleep": 1}, {"n": 2, "do": "exit"}, {"n": 3}])
        program = self.program(daemon, concurrency=2)
        self.assertNotEqual(program.wait(), 0)
        self.assertIn(b"the handler ends the program", program.said)
        self.assertEqual({n: each["outcome"] for n, each in daemon.outcomes().items()}, {1: "done", 2: "retry", 3: "release"})


if __name__ == "__main__":
    unittest.main()
