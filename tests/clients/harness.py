"""What the tests of clients/ need: daemons that can be killed, worker programs, and an imitated daemon."""

import collections
import contextlib
import http.client
import http.server
import itertools
import json
import os
import pathlib
import queue
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).parent
CLIENTS = HERE.parents[1] / "clients"
KVQUEUE = os.environ["KVQUEUE"]
# No wait is longer, in seconds.
LIMIT = 60

# A Python with the package installed, a program of Node that imports the package, and the program of go/. Without them,
# the files of clients/ are tested; Go always needs its program.
PYTHON = os.environ.get("PYTHON_WORKER", sys.executable)
COMMANDS = {
    "python": [PYTHON, str(HERE / "worker.py")],
    "asyncio": [PYTHON, str(HERE / "worker.py"), "async"],
    "node": ["node", os.environ.get("NODE_WORKER", str(HERE / "worker.mjs"))],
    "go": [os.environ.get("GO_WORKER", "")],
}
ENVIRONMENT = {name: value for name, value in os.environ.items() if name not in ("KVQUEUE_TOKEN", "PYTHONPATH")}
if PYTHON == sys.executable:
    ENVIRONMENT["PYTHONPATH"] = str(CLIENTS / "python")


def until(condition, what, program=None):
    """Waits for a condition. If it does not come, the error has what the program said."""
    end = time.monotonic() + LIMIT
    while not condition():
        has_ended = program is not None and program.process.poll() is not None
        if has_ended or time.monotonic() > end:
            said = program.said.decode() if program is not None else ""
            raise AssertionError(f"{'the program has ended' if has_ended else f'after {LIMIT} s'}: {what}\n{said}")
        time.sleep(0.02)


def free_port():
    """A port that no outgoing connection gets while a daemon is down."""
    while True:
        port = random.randrange(20000, 32000)
        with contextlib.suppress(OSError), socket.socket() as free:
            free.bind(("127.0.0.1", port))
            return port


class Database:
    """An embedded database with queues for workers."""

    def __init__(self, *queues, settings="http.require-token = false\n", attempts=3, lease="2s", keyed=None, history=()):
        self.directory = tempfile.TemporaryDirectory()
        self.path = pathlib.Path(self.directory.name)
        self.keyed = keyed
        self.settings = settings + f'database = "embedded:{self.path}/data"\n'
        self.queues = "".join(f'[queues."{name}"]\nhandler = "pull"\nlease = "{lease}"\nretry.max-attempts = {attempts}\n' for name in queues)
        self.queues += "".join(f'[queues."{name}"]\nhandler = "pull"\nlease = "{lease}"\nhistory = "1h"\n' for name in history)
        if keyed is not None:
            self.queues += f'[queues."{keyed}"]\nhandler = "pull"\nkind = "keyed"\n'

    def daemon(self, **options):
        return Daemon(self, **options)

    def command(self, *arguments, stdin=None):
        command = [KVQUEUE, "--database", f"embedded:{self.path}/data", *arguments]
        done = subprocess.run(command, check=True, input=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        return done.stdout.decode()

    def push(self, name, *items):
        lines = "".join(json.dumps(item) + "\n" for item in items).encode()
        self.command("push", name, "--lines", "-", stdin=lines)

    def states(self, name):
        return json.loads(self.command("len", name, "--json"))

    def dead(self, name):
        return [json.loads(line) for line in self.command("dead", "list", name, "--json", *self.kind(name)).splitlines()]

    def kind(self, name):
        return ("--kind", "keyed") if name == self.keyed else ()

    def close(self):
        self.directory.cleanup()


class Daemon:
    """A daemon, always on the same address."""

    def __init__(self, database, listen=None, tls=None):
        self.port = free_port()
        self.url = listen or f"http://127.0.0.1:{self.port}"
        self.address = listen or f"127.0.0.1:{self.port}"
        settings = f'{database.settings}http.listen = "{self.address}"\n'
        if tls is not None:
            self.url = f"https://localhost:{self.port}"
            settings += f'http.tls-certificate = "{tls[0]}"\nhttp.tls-key = "{tls[1]}"\n'
        self.config = database.path / f"{self.port}.toml"
        self.config.write_text(settings + database.queues, encoding="utf-8")
        self.start()

    def start(self):
        self.process = subprocess.Popen([KVQUEUE, "run", "--quiet", "--config", self.config])
        until(self.is_listening, f"{self.url} does not answer")

    def is_listening(self):
        if self.process.poll() is not None:
            raise AssertionError(f"the daemon has ended with {self.process.returncode}")
        is_unix = self.address.startswith("unix:")
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX if is_unix else socket.AF_INET) as sock:
            sock.connect(self.address[5:] if is_unix else ("127.0.0.1", self.port))
            return True
        return False

    def kill(self):
        self.process.kill()
        self.process.wait()


def work_command(urls, queue_name, concurrency=1, batch=None, lease=None, wait=None):
    """`kvqueue work` with the options that the programs of the clients have as variables. Its requests wait as long as they do."""
    del wait
    command = [KVQUEUE, "work", queue_name, *(f"--url={url}" for url in urls), f"--concurrency={concurrency}"]
    command += [] if batch is None else [f"-k{batch}"]
    command += [] if lease is None else [f"--lease={lease}s"]
    command += ["--release-exit-codes=75", "--throttle-exit-codes=76", "--throttle-for=500ms", "--throttle-scope=queue"]
    # A command starts for each item, so it starts with as little as possible.
    return [*command, "--", sys.executable, "-S", "-E", str(HERE / "handler.py")]


class Program:
    """A worker program. Its lines are counted as they come."""

    def __init__(self, name, urls, queue_name, token=None, **options):
        environment = {**ENVIRONMENT, "URLS": " ".join(urls), "QUEUE": queue_name}
        if token is not None:
            environment["KVQUEUE_TOKEN"] = token
        environment.update({option.upper(): str(value) for option, value in options.items()})
        self._seen = tempfile.TemporaryDirectory()
        if name == "work":
            # What its commands print is not its own output, so they get a pipe for it.
            lines, out = os.pipe()
            environment.update({"OUT": str(out), "SEEN": self._seen.name})
            command = work_command(urls, queue_name, **options)
            self.process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, pass_fds=[out])
            os.close(out)
            self._lines = os.fdopen(lines, "rb")
        else:
            self.process = subprocess.Popen(COMMANDS[name], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            self._lines = self.process.stdout
        self.begun, self.ended = collections.Counter(), collections.Counter()
        self.said = b""
        self._readers = [threading.Thread(target=read) for read in (self._count, self._keep)]
        for reader in self._readers:
            reader.start()

    def _count(self):
        for line in self._lines:
            word, number, attempt = line.split()
            counter = self.begun if word == b"begin" else self.ended
            counter[int(number), int(attempt)] += 1

    def _keep(self):
        for line in self.process.stderr:
            self.said += line

    def numbers(self):
        """The items that are handled to the end."""
        return {number for number, _ in list(self.ended)}

    def signal(self, number):
        self.process.send_signal(number)

    def wait(self):
        """Its exit code."""
        code = self.process.wait(LIMIT)
        for reader in self._readers:
            reader.join(LIMIT)
        return code

    def stop(self):
        self.signal(signal.SIGTERM)
        return self.wait()

    def close(self):
        self.process.kill()
        self.wait()
        self._lines.close()
        self.process.stderr.close()
        self._seen.cleanup()


def run(name, word, urls, wanted, **variables):
    """What a program prints as JSON about what it is given."""
    command = [each for each in COMMANDS[name] if each != "async"] + [word]
    environment = {**ENVIRONMENT, "URLS": " ".join(urls), **variables}
    done = subprocess.run(command, env=environment, input=json.dumps(wanted).encode(), stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)


def push(name, urls, wanted):
    """What the client's push answers."""
    return run(name, "push", urls, wanted)


def refusal(name, urls, wanted):
    """What a program that cannot push says, as its last line."""
    command = [each for each in COMMANDS[name] if each != "async"] + ["push"]
    environment = {**ENVIRONMENT, "URLS": " ".join(urls)}
    done = subprocess.run(command, env=environment, input=json.dumps(wanted).encode(), capture_output=True)
    assert done.returncode != 0, f"it has pushed {wanted}: {done.stdout.decode()}"
    return done.stderr.decode()


def call(name, urls, method, queue, *arguments, token="", **options):
    """What a method of the client answers, or the code of its error."""
    wanted = {"method": method, "queue": queue, "arguments": arguments, "options": options}
    return run(name, "call", urls, wanted, KVQUEUE_TOKEN=token)


def exec_worker(name, body):
    """The outcome of an item that a worker process of examples/workers handles with this body of `handle`."""
    program = (HERE.parents[1] / "examples/workers" / name).read_text(encoding="utf-8")
    # The examples' handlers are one line.
    lines = [body if line.lstrip().startswith(("print(item", "console.log(item")) else line for line in program.splitlines()]
    with tempfile.NamedTemporaryFile("w", suffix=name, encoding="utf-8") as file:
        file.write("\n".join(lines))
        file.flush()
        command = [sys.executable if name.endswith("py") else "node", file.name]
        text = b'{"kvqueue":1,"queue":"q"}\n{"id":"1","payload":"","attempt":1}\n'
        done = subprocess.run(command, input=text, stdout=subprocess.PIPE, check=True)
    assert all(len(line) < 65536 for line in done.stdout.splitlines()), "a line is too long"
    return json.loads(done.stdout.splitlines()[-1])


def certificate(directory):
    """The files of a certificate for localhost, which is its own authority, and of its key."""
    files = directory / "cert.pem", directory / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "1"]
    command += ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-out", files[0], "-keyout", files[1]]
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    return files


class Imitation:
    """A server with prepared answers to lease requests. After them, every answer has no items."""

    def __init__(self, *answers):
        self.times, self.tokens = [], set()
        self._answers = queue.SimpleQueue()
        for answer in answers:
            self._answers.put(answer)
        imitation = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                request = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))))
                imitation.times.append(time.monotonic())
                imitation.tokens.add(self.headers.get("Authorization"))
                status, headers, body = imitation.answer(self.path, request)
                text = json.dumps(body).encode()
                # A client may have given up.
                with contextlib.suppress(OSError):
                    self.send_response(status)
                    for header, value in {**headers, "Content-Length": str(len(text))}.items():
                        self.send_header(header, value)
                    self.end_headers()
                    self.wfile.write(text)

            def do_GET(self):
                """The question whether it is alive."""
                self.send_response(200)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *_):
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def answer(self, _path, _request):
        try:
            return self._answers.get_nowait()
        except queue.Empty:
            return 200, {}, {"lease": None, "items": []}

    def close(self):
        self._server.shutdown()
        self._server.server_close()


class Gateway:
    """A proxy before a daemon. The requests of each kind meet each of its faults in turn, and nothing in between.

    The faults are answers of its own before and after the daemon has done what it was asked for, answers that are cut off, in
    chunks or late, and connections that it closes without notice.
    """

    PAGE = b"<html><body><h1>Bad Gateway</h1></body></html>"
    REFUSALS = {
        "page": (502, "text/html", PAGE), "message": (503, "application/json", b'{"message": "no peer"}'), "nothing": (504, None, b""),
        "list": (503, "application/json", b"[]"),
    }
    FAULTS = [*REFUSALS, "lost", "cut", "chunks", "late", "closed"]

    def __init__(self, port):
        self.met = collections.Counter()
        gateway, turns, lock = self, {}, threading.Lock()

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                kind = self.path.split("?")[0].rsplit("/", 1)[-1]
                with lock:
                    faults = turns.setdefault(kind, itertools.cycle(fault for each in Gateway.FAULTS for fault in (None, each)))
                    fault = next(faults)
                    gateway.met[kind, fault] += 1
                if fault in Gateway.REFUSALS:
                    return self.answer(*Gateway.REFUSALS[fault])
                try:
                    status, text = self.forward(body)
                except (OSError, http.client.HTTPException):
                    # The daemon has ended.
                    return self.answer(*Gateway.REFUSALS["page"])
                if fault == "lost":
                    return self.answer(*Gateway.REFUSALS["page"])
                if fault == "late":
                    time.sleep(0.3)
                self.answer(status, "application/json", text, fault)
                return None

            do_GET = do_POST

            def forward(self, body):
                with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=LIMIT)) as daemon:
                    daemon.request(self.command, self.path, body, {"Content-Type": "application/json"})
                    found = daemon.getresponse()
                    return found.status, found.read()

            def answer(self, status, kind, text, fault=None):
                # A client may have given up.
                with contextlib.suppress(OSError):
                    self.send_response(status)
                    if kind is not None:
                        self.send_header("Content-Type", kind)
                    if fault == "chunks":
                        self.send_header("Transfer-Encoding", "chunked")
                        pieces = [text[at:at + 7] for at in range(0, len(text), 7)]
                        text = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
                    else:
                        self.send_header("Content-Length", str(len(text)))
                    self.end_headers()
                    self.wfile.write(text[:len(text) // 2] if fault == "cut" else text)
                # The head promises that the connection goes on.
                self.close_connection = fault in ("cut", "closed")

            def log_message(self, *_):
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def close(self):
        self._server.shutdown()
        self._server.server_close()


def item_id(number):
    """The id of an item, as a daemon writes it."""
    return f"{number:024x}"


def lease_id(name):
    """The id of a lease that has a letter for its name."""
    return f"{ord(name):032x}-1"


class FakeDaemon(Imitation):
    """A server that hands out leases of items, named a, b and so on, and keeps what workers answer.

    Tests say the numbers of items and the names of leases; workers get ids in the form of a daemon's. `on` gets the kind of a request ("lease", "extend", "acknowledge", "items") and the lease's name. It may take its time, and
    returns an error's status and code, or an object with fields of the answer, or nothing. `length` is that of the leases, in seconds; they come `late` seconds
    after their time has begun.
    """

    def __init__(self, *leases, length=30, late=0, on=lambda kind, lease: None):
        self.acknowledged, self.extended, self.reported, self._open = [], [], [], {}
        self._on, self._length, self._late, self.leases = on, length, late, dict(zip("abcdefgh", leases))
        # Set when requests for items wait no longer.
        self.has_waited, self._lock = threading.Event(), threading.Lock()
        super().__init__()

    def outcomes(self):
        """The outcomes that were acknowledged, by the numbers of the items."""
        return {each["id"]: each for _, outcomes in list(self.acknowledged) for each in outcomes}

    def answer(self, path, request):
        *_, lease, kind = path.split("/")
        lease = chr(int(lease.split("-")[0], 16)) if kind in ("extend", "acknowledge") else lease
        arrived = time.monotonic()
        found = self._on(kind, None if kind == "lease" else lease)
        if isinstance(found, tuple):
            return found[0], {}, {"error": {"code": found[1], "message": "refused", "fix": "none"}}
        if kind == "lease":
            return self._lease(request, arrived)
        if kind == "items":
            return 200, {}, {"pushed": 1, "ids": ["1"], "effects": ["added"], "already": False}
        if kind == "extend":
            self.extended.append((lease, arrived))
            self.reported += self._numbered(request.get("progress", []))
        else:
            outcomes = self._numbered(request["outcomes"])
            self.acknowledged.append((lease, outcomes))
            self._open[lease] -= {each["id"] for each in outcomes}
        answer = {"open": len(self._open[lease]), "expires_in_ms": self._length * 1000, **(found or {})}
        answer["cancelled"] = [item_id(number) for number in answer.get("cancelled", [])]
        return 200, {}, answer

    @staticmethod
    def _numbered(objects):
        return [{**each, "id": int(each["id"], 16)} for each in objects]

    def _lease(self, request, arrived):
        with self._lock:
            name = next(iter(self.leases), None)
            items = self.leases.pop(name, [])
        if name is None:
            self.has_waited.wait(request["wait_ms"] / 1000)
            return 200, {}, {"lease": None, "items": []}
        self._open[name] = {item["n"] for item in items}
        items = [{"id": item_id(item["n"]), "attempt": 1, "payload": json.dumps(item)} for item in items]
        waited = int((time.monotonic() - arrived) * 1000)
        time.sleep(self._late)
        return 200, {}, {"lease": lease_id(name), "expires_in_ms": self._length * 1000, "waited_ms": waited, "items": items}

    def close(self):
        self.has_waited.set()
        super().close()
