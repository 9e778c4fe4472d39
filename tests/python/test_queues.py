"""Other programs' queues and `kvqueue` on the same keys, both ways.

KVQUEUE is the path of the program; without it these tests are skipped.
"""

import json
import os
import subprocess
import tempfile
import threading
import unittest

import fdb

from common import DATABASE
from programs import Erlang, JavaPriorities, JavaRecipe, Priorities, Recipe

KVQUEUE = os.environ.get("KVQUEUE")


@unittest.skipUnless(KVQUEUE, "KVQUEUE does not name the program")
class QueueTest(unittest.TestCase):
    """A test with a queue of its own, empty, that commands get `options` for."""

    options = ()

    def setUp(self):
        self.db = DATABASE
        self.name = self.id()
        self.clear()

    def tearDown(self):
        self.clear()

    def clear(self):
        # The recipes' items lie under the name as a text, everything else under the name as bytes.
        for name in (self.name, self.name.encode()):
            self.db.clear_range_startswith(fdb.tuple.pack((name,)))

    def kvqueue(self, command, *arguments, stdin=None):
        """What a command prints."""
        database = ("--database", os.environ["FDB_CLUSTER_FILE"])
        done = subprocess.run(
            [KVQUEUE, command, *database, *self.options, self.name, *arguments],
            input=stdin,
            capture_output=True,
            timeout=60,
        )
        self.assertEqual(done.returncode, 0, done.stderr.decode())
        return done.stdout

    def push(self, *values, options=()):
        self.kvqueue("push", *options, "--", *values)

    def pop(self, k, *options):
        return self.kvqueue("pop", "-k", str(k), *options).splitlines()

    def peek(self, k, *options):
        return self.kvqueue("peek", "-k", str(k), *options).splitlines()

    def length(self):
        return int(self.kvqueue("len"))


class QueueRecipe(QueueTest):
    options = ("--kind", "recipe")

    def setUp(self):
        super().setUp()
        self.theirs = Recipe(self.name)

    def test_they_enqueue_and_we_pop(self):
        for value in (b"one", b"two", b"three", b""):
            self.theirs.enqueue(self.db, value)
        self.assertEqual(self.length(), 4)
        self.assertEqual(self.peek(2), [b"one", b"two"])
        self.assertEqual(self.pop(3), [b"one", b"two", b"three"])
        self.assertEqual(self.pop(3), [b""])
        self.assertEqual(self.pop(3), [])
        self.assertIsNone(self.theirs.first_item(self.db))

    def test_we_push_and_they_dequeue(self):
        self.push("one", "two", "three")
        self.assertEqual(self.theirs.last_index(self.db), 3)
        got = [self.theirs.dequeue(self.db) for _ in range(4)]
        self.assertEqual(got, [b"one", b"two", b"three", None])
        self.assertEqual(self.pop(1), [])
        self.assertEqual(self.length(), 0)

    def test_keys_and_values_are_alike(self):
        self.theirs.enqueue(self.db, b"theirs")
        self.push("ours")
        space = self.theirs.space
        rows = [(space.unpack(row.key), row.value) for row in self.db.get_range_startswith(space.key())]
        self.assertEqual([(key[0], len(key[1]), len(key)) for key, _ in rows], [(1, 20, 2), (2, 20, 2)])
        self.assertEqual([bytes(value) for _, value in rows], [b"theirs", b"ours"])

    def test_both_push_and_both_pop_in_turns(self):
        for number in range(0, 12, 2):
            self.theirs.enqueue(self.db, b"%d" % number)
            self.push(str(number + 1))
        got = []
        for _ in range(4):
            got.append(self.theirs.dequeue(self.db))
            got.extend(self.pop(2))
        self.assertEqual(got, [b"%d" % number for number in range(12)])

    def test_any_bytes_go_both_ways(self):
        everything = bytes(range(256)) * 300
        self.kvqueue("push", "--file", "/dev/stdin", stdin=everything)
        self.assertEqual(self.theirs.dequeue(self.db), everything)
        self.theirs.enqueue(self.db, everything)
        self.assertEqual(self.kvqueue("pop"), everything + b"\n")

    def test_at_the_same_time_nothing_is_lost_or_doubled(self):
        producers, each = 4, 15
        got, lock = [], threading.Lock()

        def produce(producer):
            for number in range(each):
                self.theirs.enqueue(self.db, b"theirs %d %d" % (producer, number))

        def push():
            for number in range(0, each, 5):
                self.push(*(f"ours {n}" for n in range(number, number + 5)))

        def consume(pop):
            while True:
                values = pop()
                with lock:
                    got.extend(values)
                    if len(got) >= (producers + 1) * each:
                        return

        def dequeue():
            value = self.theirs.dequeue(self.db)
            return [] if value is None else [value]

        work = [lambda producer=producer: produce(producer) for producer in range(producers)]
        work += [push, lambda: consume(dequeue), lambda: consume(lambda: self.pop(7))]
        threads = [threading.Thread(target=one) for one in work]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        expected = [b"theirs %d %d" % (producer, n) for producer in range(producers) for n in range(each)]
        expected += [b"ours %d" % n for n in range(each)]
        self.assertEqual(sorted(got), sorted(expected))
        self.assertEqual(self.length(), 0)


class QueueRecipeOfJava(QueueTest):
    options = ("--kind", "recipe", "--values", "tuple")

    def test_texts_go_both_ways(self):
        theirs = JavaRecipe(self.name)
        theirs.enqueue(self.db, "één\0")
        self.push("two")
        theirs.enqueue(self.db, "three")
        self.assertEqual(self.peek(1), ["één\0".encode()])
        self.assertEqual(theirs.dequeue(self.db), "één\0")
        self.assertEqual(theirs.dequeue(self.db), "two")
        self.assertEqual(self.pop(2), [b"three"])

    def test_values_that_are_no_texts(self):
        theirs = JavaRecipe(self.name)
        for value in (b"\xff bytes", 17, -3, 2.5, True):
            theirs.enqueue(self.db, value)
        self.assertEqual(self.pop(9), [b"\xff bytes", b"17", b"-3", b"2.5", b"true"])
        self.kvqueue("push", "--file", "/dev/stdin", stdin=b"\xff")
        self.assertEqual(theirs.dequeue(self.db), b"\xff")


class PriorityRecipe(QueueTest):
    options = ("--kind", "priority")

    def setUp(self):
        super().setUp()
        self.theirs = Priorities(self.name)

    def fill(self):
        """Priorities -2, 0, 7 and 300, the middle ones twice, from both sides."""
        self.theirs.push(self.db, b"e", 7)
        self.push("b", options=("--priority", "0"))
        self.theirs.push(self.db, b"c", 0)
        self.push("a", options=("--priority=-2",))
        self.push("f", options=("--priority", "7"))
        self.theirs.push(self.db, b"g", 300)

    def test_lowest_first(self):
        self.fill()
        self.assertEqual(self.theirs.peek(self.db), b"a")
        self.assertEqual(self.peek(1), [b"a"])
        self.assertEqual(self.pop(2), [b"a", b"b"])
        self.assertEqual([self.theirs.pop(self.db) for _ in range(2)], [b"c", b"e"])
        self.assertEqual(self.pop(9), [b"f", b"g"])
        self.assertIsNone(self.theirs.pop(self.db))

    def test_highest_first(self):
        self.fill()
        greatest = ("--end", "max")
        self.assertEqual(self.theirs.peek(self.db, True), b"g")
        self.assertEqual(self.peek(1, *greatest), [b"g"])
        self.assertEqual(self.pop(2, *greatest), [b"g", b"f"])
        self.assertEqual([self.theirs.pop(self.db, True) for _ in range(2)], [b"e", b"c"])
        self.assertEqual(self.pop(9, *greatest), [b"b", b"a"])

    def test_counts_go_on_whoever_pushed(self):
        self.fill()
        space = self.theirs.space
        keys = [space.unpack(row.key) for row in self.db.get_range_startswith(space.key())]
        self.assertEqual([key[:2] for key in keys], [(-2, 0), (0, 0), (0, 1), (7, 0), (7, 1), (300, 0)])
        self.assertTrue(all(len(key) == 3 and len(key[2]) == 20 for key in keys))

    def test_priorities_that_are_no_integers(self):
        for priority in (2.5, 2, "text", (1, 2)):
            self.theirs.push(self.db, repr(priority).encode(), priority)
        self.push("ours", options=("--priority", "2"))
        keys = self.db.get_range_startswith(self.theirs.space.key())
        self.assertEqual(self.pop(9), [bytes(row.value) for row in keys])


class PriorityRecipeOfJava(QueueTest):
    options = ("--kind", "priority", "--values", "tuple")

    def test_both_ways_at_both_ends(self):
        theirs = JavaPriorities(self.name)
        theirs.push(self.db, "high", 9)
        self.push("low", options=("--priority", "1"))
        theirs.push(self.db, "middle", 5)
        self.assertEqual(theirs.peek(self.db), "low")
        self.assertEqual(self.pop(1, "--end", "max"), [b"high"])
        self.assertEqual(theirs.pop(self.db), "low")
        self.assertEqual(self.pop(1), [b"middle"])


class ErlangQueue(QueueTest):
    def setUp(self):
        super().setUp()
        self.theirs = Erlang(self.name)

    def test_they_push_and_we_pop(self):
        self.theirs.push(self.db, b"one", b"two")
        self.theirs.push(self.db, b"three")
        self.assertEqual(self.length(), 3)
        self.assertEqual(self.pop(2), [b"one", b"two"])
        self.assertEqual((self.theirs.length(self.db), self.length()), (1, 1))
        self.assertEqual(self.theirs.pop_k(self.db, 9), [b"three"])
        self.assertEqual((self.theirs.length(self.db), self.length()), (0, 0))

    def test_we_push_and_they_pop(self):
        self.push("one", "two")
        self.theirs.push(self.db, b"three")
        self.push("four")
        self.assertEqual(self.theirs.length(self.db), 4)
        self.assertEqual(self.theirs.pop_k(self.db, 3), [b"one", b"two", b"three"])
        self.assertEqual(self.pop(1), [b"four"])
        self.assertEqual((self.theirs.length(self.db), self.length()), (0, 0))


class Daemon(QueueTest):
    """A daemon processes a queue that Python pushes to."""

    def run_daemon(self, *arguments, **settings):
        """A daemon that prints the items, told about the queue by a configuration."""
        lines = [f"[queues.{json.dumps(self.name)}]", 'handler = "stdout"']
        lines += [f"{key.replace('_', '-')} = {json.dumps(value)}" for key, value in settings.items()]
        config = tempfile.NamedTemporaryFile("w", suffix=".toml")
        self.addCleanup(config.close)
        config.write("\n".join(lines))
        config.flush()
        command = [KVQUEUE, "run", "--config", config.name, "--database", os.environ["FDB_CLUSTER_FILE"]]
        daemon = subprocess.Popen([*command, *arguments], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.addCleanup(daemon.stdout.close)
        self.addCleanup(daemon.wait, 60)
        self.addCleanup(daemon.terminate)
        return daemon

    def until_empty(self, **settings):
        """What a daemon prints that stops when the queue is empty."""
        daemon = self.run_daemon("--until-empty", **settings)
        lines = daemon.stdout.read().splitlines()
        self.assertEqual(daemon.wait(60), 0)
        return lines

    def test_every_approach_and_delivery_works_off_a_recipes_queue_in_order(self):
        theirs = JavaRecipe(self.name)
        for take in ("front", "spread", "staged"):
            for delivery in ("at-most-once", "at-least-once", "exactly-once"):
                with self.subTest(take=take, delivery=delivery):
                    values = [f"{number:02}" for number in range(25)]
                    for value in values:
                        theirs.enqueue(self.db, value)
                    lines = self.until_empty(kind="recipe", values="tuple", fetch_strategy=take, delivery=delivery)
                    self.assertEqual([line.decode() for line in lines], values)
                    self.assertIsNone(theirs.first_item(self.db))

    def test_a_priority_queue_is_worked_off_from_either_end(self):
        theirs = Priorities(self.name)
        for end in ("min", "max"):
            with self.subTest(end=end):
                for number in (3, 1, 2, 3, 1, 2):
                    theirs.push(self.db, b"%d" % number, number)
                lines = self.until_empty(kind="priority", end=end)
                self.assertEqual(lines, sorted(lines, reverse=end == "max"))
                self.assertEqual(len(lines), 6)

    def test_an_idle_daemon_finds_what_no_counter_tells_of(self):
        theirs = Recipe(self.name)
        daemon = self.run_daemon(kind="recipe", poll_interval="1s")
        for value in (b"one", b"two"):
            # The second comes when the daemon has nothing to do any more.
            theirs.enqueue(self.db, value)
            self.assertEqual(daemon.stdout.readline(), value + b"\n")


if __name__ == "__main__":
    unittest.main()
