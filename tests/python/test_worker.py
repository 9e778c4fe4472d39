"""The worker of clients/ against a daemon: each item is handled, also while daemons are killed."""

import collections
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "clients" / "python"))

from kvqueue_worker import ApiError, Client, Dead, Release, Retry, Worker

KVQUEUE = os.environ.get("KVQUEUE")
CONFIG = """
database = "embedded:{directory}/data"
http.listen = "127.0.0.1:{port}"
[queues."a/b"]
handler = "pull"
lease = "2s"
retry.max-attempts = 3
"""


@unittest.skipUnless(KVQUEUE, "KVQUEUE names no program")
class WorkerTest(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.TemporaryDirectory()
        self.addCleanup(self.directory.cleanup)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.config = os.path.join(self.directory.name, "kvqueue.toml")
        with open(self.config, "w", encoding="utf-8") as file:
            file.write(CONFIG.format(directory=self.directory.name, port=self.port))
        self.start()
        self.addCleanup(self.kill)

    def start(self):
        self.daemon = subprocess.Popen([KVQUEUE, "run", "--quiet", "--config", self.config])
        for _ in range(300):
            try:
                with urllib.request.urlopen(f"{self.url}/readyz"):
                    return
            except OSError:
                time.sleep(0.1)
        self.fail("the daemon does not answer")

    def kill(self):
        self.daemon.kill()
        self.daemon.wait()

    def run_command(self, *arguments, stdin=None):
        command = [KVQUEUE, "--config", self.config, *arguments]
        return subprocess.run(command, check=True, input=stdin, stdout=subprocess.PIPE).stdout.decode()

    def work(self, handle, is_over, **options):
        worker = Worker(self.url, "a/b", handle, **options)
        thread = threading.Thread(target=worker.run)
        thread.start()
        try:
            for _ in range(600):
                if is_over():
                    return
                time.sleep(0.1)
            self.fail("the items are not handled")
        finally:
            began = time.monotonic()
            worker.stop()
            thread.join()
            self.assertLess(time.monotonic() - began, 10)

    def test_outcomes(self):
        self.run_command("push", "a/b", "done", "retry", "release", "dead", "fails", "\u00e4")
        seen = collections.Counter()

        def handle(item):
            word = item.payload.decode()
            seen[word] += 1
            if seen[word] == 1 and word == "retry":
                raise Retry("once more", after=0)
            if seen[word] == 1 and word == "release":
                raise Release
            if word == "dead":
                raise Dead("never")
            if word == "fails":
                raise ValueError("always")

        def is_over():
            return self.run_command("len", "a/b").strip() == "0" and self.dead() == 2

        self.work(handle, is_over, batch=2)
        self.assertEqual(seen, {"done": 1, "retry": 2, "release": 2, "dead": 1, "fails": 3, "\u00e4": 1})

    def dead(self):
        return len(self.run_command("dead", "list", "a/b", "--json").splitlines())

    def test_items_are_handled_while_daemons_are_killed(self):
        count = 2000
        items = b"".join(b"%d\n" % n for n in range(count))
        self.run_command("push", "a/b", "--lines", "-", stdin=items)
        done, lock = collections.Counter(), threading.Lock()

        def handle(item):
            with lock:
                done[int(item.payload)] += 1
            time.sleep(0.01)

        stopped = threading.Event()

        def disturb():
            # Leases of answers that were lost expire in the pauses.
            for _ in range(4):
                if stopped.wait(1):
                    return
                self.kill()
                self.start()

        disturber = threading.Thread(target=disturb)
        disturber.start()
        try:
            self.work(handle, lambda: len(done) == count, threads=4, batch=20)
        except AssertionError:
            self.fail(f"{len(done)} of {count} items are handled, {self.dead()} are dead")
        finally:
            stopped.set()
            disturber.join()
        self.assertEqual(set(done), set(range(count)))

    def test_a_long_handler_keeps_its_lease(self):
        self.run_command("push", "a/b", "slow")
        calls = []

        def handle(item):
            time.sleep(5)
            calls.append(item.attempt)

        self.work(handle, lambda: calls, lease=1)
        self.assertEqual(calls, [1])
        with Client(self.url, "a/b") as client:
            self.assertEqual(client.lease(), (None, 0, []))

    def test_a_worker_without_access_says_so(self):
        text = pathlib.Path(self.config).read_text(encoding="utf-8")
        pathlib.Path(self.config).write_text("http.require-token = true\n" + text, encoding="utf-8")
        self.daemon.send_signal(signal.SIGHUP)
        for _ in range(100):
            try:
                with Client(self.url, "a/b") as client:
                    client.lease()
                time.sleep(0.1)
            except ApiError as error:
                self.assertEqual(error.status, 401)
                break
        else:
            self.fail("no token is asked for")
        with self.assertRaisesRegex(ApiError, "401"):
            Worker(self.url, "a/b", print, token="").run()
        token = self.run_command("token", "new", "w", "--scope", "work", "--queue", "a/*").strip()
        self.run_command("push", "a/b", "one")
        seen = []
        self.work(lambda item: seen.append(item.payload), lambda: seen, token=token)
        self.assertEqual(seen, [b"one"])


if __name__ == "__main__":
    unittest.main()
