"""A worker for kvqueue queues, over HTTP. One file, no dependencies, Python 3.9 and later.

    from kvqueue_worker import work

    def handle(item):
        print(item.payload)

    work("http://127.0.0.1:7420", "emails", handle)

docs/WORKERS.md of kvqueue explains leases and outcomes.
"""

import base64
import contextlib
import dataclasses
import http.client
import json
import logging
import os
import signal
import socket
import threading
import time
import typing
import urllib.parse

log = logging.getLogger("kvqueue")

# How long a request for items waits at the daemon, in seconds.
WAIT = 20
# The pauses after a failure, in seconds: the first one, and the longest.
PAUSES = (0.1, 10)


class Retry(Exception):
    """The item failed. It is tried again after some seconds, or by the queue's rules."""

    def __init__(self, reason="", after: typing.Optional[float] = None):
        super().__init__(reason)
        self.after = after


class Release(Exception):
    """The item goes back to the queue. The attempt does not count."""


class Dead(Exception):
    """The item failed for good, and becomes a dead letter."""


class ApiError(Exception):
    """The daemon refused a request."""

    def __init__(self, status, code, message):
        super().__init__(f"{message} ({status} {code})")
        self.status = status
        self.code = code


@dataclasses.dataclass(frozen=True)
class Item:
    """An item to be handled."""

    id: str
    attempt: int
    payload: bytes
    attributes: typing.Dict[str, str]
    content_type: typing.Optional[str] = None
    trace_parent: typing.Optional[str] = None

    def json(self):
        """The payload as JSON."""
        return json.loads(self.payload)


class Client:
    """The API of a daemon for one queue. It keeps a connection; use one client in each thread."""

    def __init__(self, url: str, queue: str, token: typing.Optional[str] = None, timeout: float = 30):
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{url!r} is not the URL of a daemon, such as http://127.0.0.1:7420")
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._connection = kind(parts.hostname, parts.port, timeout=timeout)
        self._base = f"{parts.path.rstrip('/')}/api/v1/queues/{urllib.parse.quote(queue, safe='')}"
        token = token if token is not None else os.environ.get("KVQUEUE_TOKEN")
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}

    def call(self, path: str, body=None, timeout: float = 30):
        """Sends a request. The daemon's answer as JSON, or an ApiError."""
        headers, data = dict(self._headers), None
        if body is not None:
            headers["Content-Type"] = "application/json"
            data = json.dumps(body).encode()
        try:
            self._connection.timeout = timeout
            if self._connection.sock is not None:
                self._connection.sock.settimeout(timeout)
            self._connection.request("POST", self._base + path, data, headers)
            response = self._connection.getresponse()
            status, text = response.status, response.read()
        except BaseException:
            # What comes next on this connection would be the answer to this request.
            self._connection.close()
            raise
        if status // 100 == 2:
            return json.loads(text) if text else None
        try:
            error = json.loads(text)["error"]
        except (ValueError, KeyError, TypeError):
            raise ApiError(status, "unknown", text[:200].decode(errors="replace")) from None
        raise ApiError(status, error["code"], f"{error['message']}; {error['fix']}")

    def lease(self, max: int = 1, wait: float = 0, lease: typing.Optional[float] = None):
        """Leases items: the lease (None if nothing is ready), its length in seconds, the items."""
        body = {"max": max, "wait_ms": int(wait * 1000)}
        if lease is not None:
            body["lease_ms"] = int(lease * 1000)
        answer = self.call("/lease", body, timeout=wait + 30)
        return answer["lease"], answer.get("expires_in_ms", 0) / 1000, [_item(item) for item in answer["items"]]

    def extend(self, lease: str):
        """Extends a lease."""
        return self.call(f"/leases/{lease}/extend")

    def acknowledge(self, lease: str, outcomes: list, release_rest: bool = False):
        """Says how items of a lease ended."""
        return self.call(f"/leases/{lease}/acknowledge", {"outcomes": outcomes, "release_rest": release_rest})

    def interrupt(self):
        """Ends a request that another thread waits for, with an error there."""
        sock = self._connection.sock
        if sock is not None:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def close(self):
        """Closes the connection. The next request opens another."""
        self._connection.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def _item(found: dict) -> Item:
    text, encoded = found.get("payload"), found.get("payload_base64")
    payload = text.encode() if text is not None else base64.b64decode(encoded or "")
    return Item(
        found["id"], found["attempt"], payload, found.get("attributes", {}), found.get("content_type"), found.get("trace_parent")
    )


def outcome_of(handle, item: Item) -> dict:
    """Handles an item. Its outcome, as the daemon reads it."""
    try:
        handle(item)
    except Retry as retry:
        outcome = {"outcome": "retry", "reason": str(retry)}
        if retry.after is not None:
            outcome["after_ms"] = int(retry.after * 1000)
    except Release:
        outcome = {"outcome": "release"}
    except Dead as dead:
        outcome = {"outcome": "dead", "reason": str(dead)}
    except Exception as error:  # pylint: disable=broad-except
        log.exception("item %s failed", item.id)
        outcome = {"outcome": "retry", "reason": f"{type(error).__name__}: {error}"}
    else:
        outcome = {"outcome": "done"}
    return {"id": item.id, **outcome}


class Worker:
    """Leases items and handles them in threads, until it is stopped."""

    def __init__(
        self,
        url: str,
        queue: str,
        handle: typing.Callable[[Item], None],
        threads: int = 1,
        batch: int = 10,
        lease: typing.Optional[float] = None,
        token: typing.Optional[str] = None,
    ):
        self._client = lambda timeout=30: Client(url, queue, token, timeout)
        self._handle, self._threads, self._batch, self._lease = handle, threads, batch, lease
        self._stopped = threading.Event()
        self._failure = None
        # Clients that wait for items.
        self._waiting = set()
        self._client()  # A wrong URL is an error here, not in a thread.

    def stop(self):
        """Lets it end: items that are being handled are finished, the others go back."""
        self._stopped.set()
        for client in tuple(self._waiting):
            client.interrupt()

    def run(self):
        """Works until it is stopped. An ApiError if the daemon does not let this worker do so."""
        threads = [threading.Thread(target=self._fetch, name=f"kvqueue-{n}") for n in range(self._threads)]
        for thread in threads:
            thread.start()
        for thread in threads:
            # With a time limit, so that signals are handled meanwhile.
            while thread.is_alive():
                thread.join(0.5)
        if self._failure is not None:
            raise self._failure

    def _fetch(self):
        with self._client() as client:
            self._lease_and_work(client)

    def _lease_and_work(self, client):
        pause = PAUSES[0]
        while not self._stopped.is_set():
            self._waiting.add(client)
            try:
                lease, length, items = client.lease(self._batch, WAIT, self._lease)
            except ApiError as error:
                if error.status // 100 == 4 and error.status not in (408, 429):
                    self._failure = error
                    self.stop()
                    return
                pause = self._rest(pause, error)
                continue
            except (OSError, http.client.HTTPException, ValueError) as error:
                pause = self._rest(pause, error)
                continue
            finally:
                self._waiting.discard(client)
            pause = PAUSES[0]
            if lease is not None:
                self._work(client, lease, length, items)

    def _rest(self, pause, error):
        if self._stopped.is_set():
            return pause
        log.warning("the daemon does not answer, trying again in %.1f s: %s", pause, error)
        self._stopped.wait(pause)
        return min(2 * pause, PAUSES[1])

    def _work(self, client, lease, length, items):
        """Handles the items of a lease one after the other. A thread of its own extends the lease."""
        over = threading.Event()
        lost = threading.Event()
        extender = threading.Thread(target=self._extend, args=(lease, length, over, lost), name="kvqueue-extend")
        extender.start()
        outcomes = []
        began = time.monotonic()
        try:
            for item in items:
                if self._stopped.is_set() or lost.is_set():
                    break
                outcomes.append(outcome_of(self._handle, item))
                # The outcomes of long work are not kept back.
                if time.monotonic() - began > 1 and item is not items[-1]:
                    self._acknowledge(client, lease, outcomes, False)
                    outcomes, began = [], time.monotonic()
        finally:
            over.set()
            extender.join()
        if not lost.is_set():
            self._acknowledge(client, lease, outcomes, True)

    def _extend(self, lease, length, over, lost):
        with self._client(max(1.0, length / 3)) as client:
            while not over.wait(max(0.1, length / 3)):
                try:
                    client.extend(lease)
                except ApiError as error:
                    if error.code == "lease_lost":
                        log.warning("a lease expired; its items are handled again")
                        lost.set()
                        return
                    log.warning("cannot extend a lease: %s", error)
                except (OSError, http.client.HTTPException, ValueError) as error:
                    log.warning("cannot extend a lease: %s", error)

    def _acknowledge(self, client, lease, outcomes, is_last):
        pause = PAUSES[0]
        for attempt in range(8):
            try:
                client.acknowledge(lease, outcomes, is_last)
                return
            except ApiError as error:
                if error.code == "lease_lost":
                    if attempt == 0:
                        log.warning("a lease expired before its items were acknowledged; they are handled again")
                    return
                failure = error
            except (OSError, http.client.HTTPException, ValueError) as error:
                failure = error
            log.warning("cannot acknowledge, trying again in %.1f s: %s", pause, failure)
            time.sleep(pause)
            pause = min(2 * pause, PAUSES[1])


def work(url: str, queue: str, handle: typing.Callable[[Item], None], **options):
    """Handles the items of a queue until SIGTERM or SIGINT. The options are those of Worker."""
    worker = Worker(url, queue, handle, **options)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: worker.stop())
    worker.run()
