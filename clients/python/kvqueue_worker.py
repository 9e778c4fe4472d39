"""Workers and pushes for kvqueue over HTTP. One file, no dependencies, Python 3.9 and later.

    from kvqueue_worker import work

    def handle(item):
        print(item.payload)

    work("http://127.0.0.1:7420", "emails", handle)

`work_async` is the same for asyncio, `Client.push` adds items, and other methods of `Client` show and cancel items and
manage batches and schedules. docs/clients/python.md of kvqueue is the page about it.
"""

import asyncio
import base64
import collections
import contextlib
import dataclasses
import datetime
import http.client
import inspect
import json
import logging
import math
import os
import random
import re
import selectors
import signal
import socket
import ssl
import threading
import time
import urllib.parse
from typing import (
    Any, Awaitable, Callable, Deque, Dict, Iterable, Iterator, List, Mapping, Optional, Set, Tuple, TypeVar, Union,
)

__all__ = [
    "ApiError", "AsyncWorker", "Client", "Dead", "Item", "ItemView", "NewItem", "Progress", "Pushed", "Release", "Retry",
    "Throttle", "Unreachable", "Worker", "work", "work_async",
]
__version__ = "0.1.0"

log = logging.getLogger("kvqueue")

# Times are in seconds.
# How long a daemon may take to accept a connection, and to answer a request.
CONNECT, TIMEOUT = 5.0, 30.0
# How long a daemon may take to answer a push that is repeated, so that the next one is asked in time.
PUSH_TIMEOUT = 10.0
# The first and the longest pause after failures; the longest pause that a daemon may ask for.
PAUSES, RETRY_AFTER = (0.1, 10.0), 60.0
# The pause after an answer that had no items and did not wait for them, as those of a daemon that stops.
EMPTY_PAUSE = 1.0
# How long outcomes wait for others of their lease, so that one request acknowledges them together.
LINGER = 0.05
# A worker leases items ahead: as many as it handles in this time, by the average of the last ones.
AHEAD = 1.0
# Items that were leased ahead go back if their handling has not begun by then.
STUCK = 5.0
# How many threads acknowledge and extend leases: up to three requests that hang hold up no other lease.
KEEPERS = 4
# The most outcomes in one request, so that their reasons fit into it, and the most characters of their results.
MOST_OUTCOMES, MOST_RESULTS = 100, 500_000
# The longest result in bytes.
LONGEST_RESULT = 90_000
# The most reports of progress in one request, so that they fit into it, and the longest message in bytes.
MOST_REPORTS, LONGEST_MESSAGE = 40, 200
# How long one request waits for the end of an item.
ITEM_WAIT = 20.0
# The most finished items that wait for their acknowledgement. With more, nothing is leased.
UNACKNOWLEDGED = 1000
# How long a worker that stops tries to acknowledge.
STOP_PATIENCE = 30.0
# The longest pause between its attempts then.
STOP_PAUSE = 1.0
# The longest answer in bytes, and the longest reason in characters.
LONGEST_ANSWER, LONGEST_REASON = 256 << 20, 1000
# The longest pause before a retry: a year.
LONGEST_AFTER = 365 * 24 * 3600.0
LONGEST_THROTTLE = 24 * 3600.0

Json = Dict[str, Any]
Duration = Union[float, datetime.timedelta]
# What an item carries. A dict or a list is stored as JSON; text and bytes are stored as they are.
Payload = Union[bytes, str, Dict[str, Any], List[Any]]
# What `push` takes: a list may be several items or one, so it is neither.
Pushable = Union[bytes, str, Dict[str, Any], "NewItem"]
Answer = TypeVar("Answer")


class Retry(Exception):
    """The item failed. It is tried again after some seconds (or a timedelta), or by the queue's rules."""

    after: Optional[float] = None

    def __init__(self, reason: str = "", after: Union[float, datetime.timedelta, None] = None):
        super().__init__(reason)
        self.after = after.total_seconds() if isinstance(after, datetime.timedelta) else after
        if self.after is not None and (not isinstance(self.after, (int, float)) or math.isnan(self.after)):
            raise TypeError("after is not a number of seconds")


class Release(Exception):
    """The item goes back to the queue. The attempt does not count."""


class Throttle(Exception):
    """A service asks for a pause. The item goes back to the queue, the attempt does not count, and no item of the scope
    ("key", "tenant" or "queue") starts for some seconds (or a timedelta)."""

    def __init__(self, reason: str = "", *, after: Union[float, datetime.timedelta], scope: str = "key"):
        super().__init__(reason)
        self.after = after.total_seconds() if isinstance(after, datetime.timedelta) else after
        if not isinstance(self.after, (int, float)) or math.isnan(self.after):
            raise TypeError("after is not a number of seconds")
        if scope not in ("key", "tenant", "queue"):
            raise ValueError('scope is not "key", "tenant" or "queue"')
        self.scope = scope


class Dead(Exception):
    """The item failed for good, and becomes a dead letter."""


class Unreachable(OSError):
    """There is no connection to the daemon, and nothing was sent."""


class ApiError(Exception):
    """A daemon refused a request. `code` is one of the table in docs/API.md."""

    def __init__(self, status: int, code: str, message: str, retry_after: Optional[float] = None):
        super().__init__(f"{message} ({status} {code})")
        self.status, self.code, self.retry_after = status, code, retry_after


@dataclasses.dataclass(frozen=True)
class Item:
    """An item to be handled."""

    id: str
    attempt: int
    payload: bytes
    attributes: Mapping[str, str]
    content_type: Optional[str] = None
    trace_parent: Optional[str] = None
    lease_lost: threading.Event = dataclasses.field(default_factory=threading.Event, repr=False, compare=False)
    """Set when the lease has expired: then another worker may handle the item."""
    key: Optional[bytes] = None
    """Its key, in a keyed queue."""
    cancelled: threading.Event = dataclasses.field(default_factory=threading.Event, repr=False, compare=False)
    """Set when the item was cancelled: nobody waits for it any more, and how its handler ends does not count."""
    _report: List[Json] = dataclasses.field(default_factory=list, init=False, repr=False, compare=False)

    def json(self) -> Any:
        """The payload as JSON."""
        return json.loads(self.payload)

    def should_stop(self) -> bool:
        """Whether its handler works in vain: the item was cancelled, or its lease has expired."""
        return self.cancelled.is_set() or self.lease_lost.is_set()

    def report_progress(self, percent: Optional[float] = None, message: Optional[str] = None) -> None:
        """Reports how far the handler is. The next extension of the lease has the last report; nothing waits for it."""
        report: Json = {"id": self.id}
        if percent is not None:
            if math.isnan(percent):
                raise ValueError("percent is not a number")
            report["percent"] = min(max(percent, 0), 100)
        if message is not None:
            # Cut between characters. Half a surrogate pair is no text for a daemon.
            text = str(message).encode("utf-8", "replace")
            report["message"] = text[:LONGEST_MESSAGE].decode("utf-8", "ignore")
        self._report[:] = [report]


@dataclasses.dataclass(frozen=True)
class NewItem:
    """An item to be pushed. A payload that is a dict or a list is stored as JSON. Times are seconds, or a timedelta.

    `key` is its key in a keyed queue; `batch` is the batch that it joins. It expires if no attempt has begun within `ttl`;
    without it the queue's own time holds. `unique` is its unique key: with another item of this key nothing is pushed. The
    key is taken until the item ends, or with `unique_for` for that time. With `replace` an item that waits under the key gets what is pushed."""

    payload: Payload
    delay: Optional[Duration] = None
    at: Optional[datetime.datetime] = None
    unique: Optional[str] = None
    attributes: Optional[Mapping[str, str]] = None
    content_type: Optional[str] = None
    trace_parent: Optional[str] = None
    priority: Optional[int] = None
    key: Union[bytes, str, None] = None
    ttl: Optional[Duration] = None
    unique_for: Optional[Duration] = None
    replace: bool = False
    batch: Optional[str] = None


@dataclasses.dataclass(frozen=True)
class Progress:
    """How far the handler of a running item is. `at` is when it reported that, in RFC 3339."""

    at: str
    percent: Optional[int] = None
    message: Optional[str] = None


@dataclasses.dataclass(frozen=True)
class ItemView:
    """An item, whatever it is doing. `state` is "ready", "scheduled", "retrying", "running", "dead" or "finished".

    `outcome` of an item that has ended is "done", "dead", "cancelled", "expired" or "taken"; it is None if the queue keeps
    no history. `result` is what its handler returned. `answer` is all that the daemon has answered.
    """

    id: str
    state: str
    outcome: Optional[str] = None
    payload: Optional[bytes] = None
    result: Optional[bytes] = None
    progress: Optional[Progress] = None
    attempts: Optional[int] = None
    reason: Optional[str] = None
    answer: Mapping[str, Any] = dataclasses.field(default_factory=dict, repr=False)

    @property
    def has_ended(self) -> bool:
        """Whether it has ended, or is a dead letter."""
        return self.state in ("finished", "dead")


@dataclasses.dataclass(frozen=True)
class Pushed:
    """The result of a push: how many items were added, and the id and effect of each ("added", "duplicate", "replaced",
    "repeated")."""

    pushed: int
    ids: List[Optional[str]]
    effects: List[str]
    already: bool


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str):
        super().__init__("localhost")
        self._path = path

    def connect(self) -> None:
        sock = socket.socket(socket.AF_UNIX)
        try:
            sock.settimeout(self.timeout)
            sock.connect(self._path)
        except BaseException:
            sock.close()
            raise
        self.sock = sock


def _connection(url: str, ca_file: Optional[str]) -> Tuple[http.client.HTTPConnection, str]:
    """A connection that is not open yet, and the path before those of the API."""
    parts = urllib.parse.urlsplit(url)
    if parts.scheme == "unix" and parts.path:
        return _UnixConnection(parts.path), ""
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"{url!r} is not the URL of a daemon, such as http://127.0.0.1:7420 or unix:/run/kvqueue/http.sock")
    path = parts.path.rstrip("/")
    if parts.scheme == "http":
        return http.client.HTTPConnection(parts.hostname, parts.port), path
    context = ssl.create_default_context(cafile=ca_file)
    return http.client.HTTPSConnection(parts.hostname, parts.port, context=context), path


class Client:
    """The API of a daemon, or of several daemons of one database. Each thread needs a client of its own.

    `url` is a URL or several; after a failure the next daemon is asked. `token` is an access token, by default the
    one in KVQUEUE_TOKEN. `ca_file` has the certificates to trust for https, by default those of the system.
    """

    def __init__(self, url: Union[str, Iterable[str]], token: Optional[str] = None, ca_file: Optional[str] = None):
        self._urls = [url] if isinstance(url, str) else list(url)
        if not self._urls:
            raise ValueError("there is no URL of a daemon")
        self._connections = [_connection(each, ca_file) for each in self._urls]
        self._turn = 0
        self._is_interrupted = False
        # Files with a token end with a newline.
        self._token = (token if token is not None else os.environ.get("KVQUEUE_TOKEN", "")).strip()
        if not all("!" <= character <= "~" for character in self._token):
            raise ValueError("the token has a character that cannot be sent; give the token alone")

    def call(self, path: str, body: Optional[Json] = None, timeout: float = TIMEOUT, method: str = "POST") -> Json:
        """Sends one request to the daemon whose turn it is. After a failure it is the next one's turn."""
        try:
            return self._exchange(method, path, None if body is None else json.dumps(body).encode(), timeout)
        except BaseException as error:
            if _is_temporary(error):
                self._ask_next()
            raise

    def _ask_next(self) -> None:
        self._turn = (self._turn + 1) % len(self._urls)

    def _exchange(self, method: str, path: str, body: Optional[bytes], timeout: float) -> Json:
        connection, base = self._connections[self._turn]
        # A program may fork, so each request asks for the process.
        headers = {"User-Agent": f"kvqueue-python/{__version__} {_HOST}/{os.getpid()}"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        try:
            self._open(connection, timeout)
            connection.request(method, f"{base}/api/v1/queues/{path}", body, headers)
            response = connection.getresponse()
            text = _read(response)
        except BaseException:
            # The next answer on this connection would be the one to this request.
            connection.close()
            raise
        if response.status == 204:
            return {}
        if response.status // 100 == 2:
            try:
                return dict(json.loads(text))
            except (TypeError, ValueError) as error:
                raise http.client.HTTPException(f"the answer is not a daemon's: {error}") from error
        raise self._refusal(response.status, response.getheader("Retry-After"), text, method, path)

    def _open(self, connection: http.client.HTTPConnection, timeout: float) -> None:
        if connection.sock is not None and _is_readable(connection.sock):
            # The daemon has closed it.
            connection.close()
        if connection.sock is None:
            connection.timeout = min(timeout, CONNECT)
            try:
                connection.connect()
            except OSError as error:
                raise Unreachable(f"cannot connect to {self._urls[self._turn]}: {error}") from error
        connection.sock.settimeout(timeout)
        if self._is_interrupted:
            raise Unreachable("interrupted")

    def _refusal(self, status: int, retry_after: Optional[str], text: bytes, method: str, path: str) -> ApiError:
        try:
            error = json.loads(text)["error"]
            code, message = error["code"], f"{error['message']}; {error['fix']}"
        except (ValueError, KeyError, TypeError):
            # Another program has answered, such as a proxy.
            code, message = "unknown", text[:200].decode(errors="replace")
        if status == 401 or code == "forbidden":
            queue = urllib.parse.unquote(path.split("/")[0])
            message += (
                f"; {self._urls[self._turn]} refuses {self._named_token()}; get one with 'kvqueue token new NAME --scope"
                f" {_scope(method, path)} --queue {queue}', and give it as token or in KVQUEUE_TOKEN"
            )
        return ApiError(status, code, message, float(retry_after) if retry_after and retry_after.isdigit() else None)

    def _named_token(self) -> str:
        """The token without its secret."""
        if not self._token:
            return "requests without a token"
        return f"the token {self._token[:12]}..." if self._token.startswith("kvq_") else "the token"

    def push(
        self,
        queue: str,
        item: Pushable,
        idempotency_key: Optional[str] = None,
        patience: float = TIMEOUT,
    ) -> Pushed:
        """Pushes an item, which is stored durably when it returns: a dict (as JSON), text, bytes, or a `NewItem`.

        It tries for `patience` seconds. If the answer is lost, it repeats the push only with an idempotency key.
        """
        return self.push_many(queue, [item], idempotency_key, patience)

    def push_many(
        self, queue: str, items: Iterable[Pushable], idempotency_key: Optional[str] = None, patience: float = TIMEOUT
    ) -> Pushed:
        """Pushes up to 1000 items in one transaction, as `push` does with one."""
        if isinstance(items, (str, bytes, bytearray, memoryview, Mapping, NewItem)):
            raise TypeError(f"cannot push a {type(items).__name__} as several items; write push_many(queue, [item])")
        body: Json = {"items": [_new_item(item) for item in items]}
        if idempotency_key is not None:
            body["idempotency_key"] = idempotency_key

        def read(found: Json) -> Pushed:
            return Pushed(found["pushed"], found["ids"], found["effects"], found["already"])

        return self._ask("POST", f"{_quoted(queue)}/items", body, read, idempotency_key is not None, patience)

    def _ask(
        self,
        method: str,
        path: str,
        body: Optional[Json],
        read: Callable[[Json], Answer],
        is_repeatable: bool,
        patience: float = TIMEOUT,
        timeout: Optional[float] = None,
    ) -> Answer:
        """Sends a request until a daemon answers, for `patience` seconds. If an answer is lost, `is_repeatable` decides."""
        pauses, until = _Pauses(len(self._urls)), time.monotonic() + patience
        timeout = timeout or (PUSH_TIMEOUT if is_repeatable else TIMEOUT)
        while True:
            try:
                found = self.call(path, body, timeout, method)
                with _daemons_answer():
                    return read(found)
            except Exception as error:
                is_safe = is_repeatable or isinstance(error, Unreachable)
                is_safe = is_safe or (isinstance(error, ApiError) and error.status in (403, 429))
                pause = pauses.next(error)
                if not (is_safe and _is_temporary(error)) or time.monotonic() + pause > until:
                    raise
                time.sleep(pause)

    # Items

    def show_item(self, queue: str, id: str) -> ItemView:
        """An item, whatever it is doing. One that has ended is there if the queue keeps a history. The scope is `read`."""
        return self._ask("GET", _item_path(queue, id), None, _item_view, True)

    def wait_item(self, queue: str, id: str, wait: float = 30.0) -> ItemView:
        """Waits until an item has ended or is a dead letter, for `wait` seconds at most, and returns it as it is then.

        Without a history of the queue, its result and its outcome are not known. The scope is `read`.
        """
        until, is_known = time.monotonic() + wait, False
        while True:
            left = max(0.0, until - time.monotonic())
            step = min(left, ITEM_WAIT)
            path = f"{_item_path(queue, id)}?wait_ms={math.ceil(step * 1000)}"
            try:
                found = self._ask("GET", path, None, _item_view, True, timeout=step + PUSH_TIMEOUT)
            except ApiError as error:
                if is_known and error.code == "not_found":
                    # It has ended between two requests.
                    return ItemView(id, "finished", answer={"id": id, "state": "finished"})
                raise
            if found.has_ended or step == left:
                return found
            is_known = True

    def cancel_item(self, queue: str, id: str) -> str:
        """Cancels an item that has not ended, and returns the state that it had. The scope is `admin`."""
        return self._ask("POST", f"{_item_path(queue, id)}/cancel", None, lambda found: str(found["state_before"]), False)

    # Batches

    def new_batch(self, queue: str, then: Pushable, deadline: Optional[Duration] = None) -> str:
        """Makes a batch, and returns its id. When all items that were pushed to it have ended, `then` is pushed to `queue`.

        With a deadline (seconds, or a timedelta) that happens by then, whatever has ended. The scope is `push`.
        """
        body: Json = {"then": _new_item(then)}
        if deadline is not None:
            body["deadline_ms"] = int(_seconds(deadline) * 1000)
        return self._ask("POST", f"{_quoted(queue)}/batches", body, lambda found: str(found["id"]), False)

    def push_after(
        self,
        queue: str,
        then: Pushable,
        after: Iterable[Union[str, Tuple[str, str]]],
        deadline: Optional[Duration] = None,
        missing_ok: bool = False,
    ) -> Json:
        """Pushes `then` to `queue` when the items of `after` have ended, whichever way; each is an id, or a pair of another queue and an id.

        Returns `id`, that of the batch that waits for them, how many it waits for, how many had ended, by outcome, and how many are not there: `waits_for`,
        `ended`, `gone`. Without `missing_ok` nothing is pushed if one is not there. The scope is `push`, for the other queues, too.
        """
        others = [{"id": each} if isinstance(each, str) else {"queue": each[0], "id": each[1]} for each in after]
        body: Json = {"then": _new_item(then), "after": others}
        if missing_ok:
            body["missing"] = "ended"
        if deadline is not None:
            body["deadline_ms"] = int(_seconds(deadline) * 1000)
        return self._ask("POST", f"{_quoted(queue)}/batches", body, dict, False)

    def commit_batch(self, queue: str, batch: str) -> bool:
        """Ends the pushes to a batch, so that it can call back. Whether it was not committed before. The scope is `push`."""
        path = f"{_batch_path(queue, batch)}/commit"
        return self._ask("POST", path, None, lambda found: bool(found["changed"]), True)

    def show_batch(self, queue: str, batch: str) -> Json:
        """A batch that has not called back: its state ("open", "committed"), its "counts" and so on. The scope is `read`."""
        return self._ask("GET", _batch_path(queue, batch), None, dict, True)

    def list_batches(self, queue: str) -> Iterator[Json]:
        """The batches of a queue that have not called back. The scope is `read`."""
        return self._pages(f"{_quoted(queue)}/batches", "batches")

    def cancel_batch(self, queue: str, batch: str) -> Json:
        """Removes a batch, and returns its counts. It does not call back, and its items go on. The scope is `admin`."""
        return self._ask("DELETE", _batch_path(queue, batch), None, lambda found: dict(found["counts"]), False)

    # Schedules

    def list_schedules(self, queue: str) -> Iterator[Json]:
        """The schedules of a queue, without their payloads. The scope is `read`."""
        return self._pages(f"{_quoted(queue)}/schedules", "schedules")

    def show_schedule(self, queue: str, name: str) -> Json:
        """A schedule, with its payload and its next five times ("times"). The scope is `read`."""
        return self._ask("GET", _schedule_path(queue, name), None, dict, True)

    def put_schedule(
        self,
        queue: str,
        name: str,
        payload: Payload = b"",
        *,
        cron: Optional[str] = None,
        zone: Optional[str] = None,
        every: Optional[Duration] = None,
        attributes: Optional[Mapping[str, str]] = None,
        content_type: Optional[str] = None,
        key: Union[bytes, str, None] = None,
        priority: Optional[int] = None,
        missed: Optional[str] = None,
        missed_window: Optional[Duration] = None,
        missed_max: Optional[int] = None,
        overlap: Optional[str] = None,
        jitter: Optional[Duration] = None,
        create: bool = False,
    ) -> Json:
        """Makes a schedule, or replaces it whole: the items that it pushes, and `cron` (and `zone`) or `every`.

        With `create` also for a queue that is nowhere yet: before its first push, if the daemon's configuration does not have it.
        Durations are seconds or a timedelta. The answer has its "effect" ("created", "replaced", "unchanged"), when it
        fires in English ("description"), and its "next" time. The scope is `admin`.
        """
        durations = {"every": every, "missed_window": missed_window, "jitter": jitter}
        body: Json = {
            "cron": cron, "zone": zone, "attributes": dict(attributes) if attributes is not None else None,
            "content_type": content_type, "priority": priority, "missed": missed, "missed_max": missed_max, "overlap": overlap,
            **{name: None if each is None else f"{round(_seconds(each) * 1000)}ms" for name, each in durations.items()},
            **_payload(payload), **({} if key is None else _text_or_base64("key", key)),
        }
        body = {name: value for name, value in body.items() if value is not None}
        return self._ask("PUT", _schedule_path(queue, name) + ("?create=true" if create else ""), body, dict, True)

    def remove_schedule(self, queue: str, name: str, force: bool = False) -> None:
        """Removes a schedule with its history; with `force` also one of a configuration. The scope is `admin`."""
        self._ask("DELETE", _schedule_path(queue, name) + ("?force=true" if force else ""), None, dict, False)

    def pause_schedule(self, queue: str, name: str) -> None:
        """Pauses a schedule. The scope is `admin`."""
        self._ask("POST", f"{_schedule_path(queue, name)}/pause", None, dict, True)

    def resume_schedule(self, queue: str, name: str, restart: bool = False) -> None:
        """Lets a schedule go on. With `restart` it begins now, also if it is not paused. The scope is `admin`."""
        body = {"restart": True} if restart else None
        self._ask("POST", f"{_schedule_path(queue, name)}/resume", body, dict, not restart)

    def fire_schedule(self, queue: str, name: str) -> Optional[str]:
        """Pushes an item of a schedule now. Its id; None if it is gone already. The scope is `admin`."""
        return self._ask("POST", f"{_schedule_path(queue, name)}/fire", None, lambda found: _text(found["item"]), False)

    def schedule_history(self, queue: str, name: str) -> Iterator[Json]:
        """What became of the times of a schedule, the newest first. The scope is `read`."""
        return self._pages(f"{_schedule_path(queue, name)}/history", "records")

    def _pages(self, path: str, name: str) -> Iterator[Json]:
        """The entries of all pages of a list. A page is asked for when it is needed."""
        query = ""
        while True:
            found, following = self._ask("GET", path + query, None, lambda page: (page[name], page["next"]), True)
            yield from found
            if following is None:
                return
            query = f"?after={_quoted(following)}"

    # Leases

    def lease(
        self, queue: str, max: int = 1, wait: float = 0, lease: Optional[float] = None
    ) -> Tuple[Optional[str], float, List[Item]]:
        """Leases items: the lease (None if nothing is ready), its length in seconds, the items."""
        return self._lease(queue, max, wait, lease)[:3]

    def _lease(
        self, queue: str, max: int, wait: float, lease: Optional[float]
    ) -> Tuple[Optional[str], float, List[Item], float]:
        """The same, and when the lease's time began: after the request has waited at the daemon."""
        body: Json = {"max": max, "wait_ms": int(wait * 1000)}
        if lease is not None:
            body["lease_ms"] = int(lease * 1000)
        asked = time.monotonic()
        answer = self.call(f"{_quoted(queue)}/lease", body, timeout=wait + TIMEOUT)
        lost, waited = threading.Event(), answer.get("waited_ms")
        # A daemon of an earlier version does not tell how long the request has waited.
        began = time.monotonic() if waited is None else asked + waited / 1000
        with _daemons_answer():
            items = [_item(item, lost) for item in answer["items"]]
            return answer["lease"], answer.get("expires_in_ms", 0) / 1000, items, began

    def extend(self, queue: str, lease: str, timeout: float = TIMEOUT, items: Iterable[Item] = ()) -> List[str]:
        """Extends a lease, and tells the daemon what these items of it have reported. The ids of its cancelled items."""
        sent = [(item, item._report.pop()) for item in items if item._report]
        for item, report in sent[MOST_REPORTS:]:
            item._report.append(report)
        body = {"progress": [report for _, report in sent[:MOST_REPORTS]]} if sent else {}
        try:
            return list(self.call(f"{_quoted(queue)}/leases/{lease}/extend", body, timeout).get("cancelled", ()))
        except Exception as error:
            if _is_temporary(error):
                for item, report in sent[:MOST_REPORTS]:
                    item._report[:] = item._report or [report]
            raise

    def acknowledge(
        self, queue: str, lease: str, outcomes: List[Json], release_rest: bool = False, timeout: float = TIMEOUT
    ) -> List[str]:
        """Acknowledges items of a lease. The ids of its cancelled items, whose outcomes are passed over."""
        body = {"outcomes": outcomes, "release_rest": release_rest}
        return list(self.call(f"{_quoted(queue)}/leases/{lease}/acknowledge", body, timeout).get("cancelled", ()))

    def interrupt(self) -> None:
        """Ends the request that another thread waits for, and all later ones, with an error there."""
        self._is_interrupted = True
        for connection, _ in self._connections:
            sock = connection.sock
            if sock is not None:
                with contextlib.suppress(OSError):
                    # Not the method of SSLSocket: it takes the socket's state away from the thread that reads.
                    socket.socket.shutdown(sock, socket.SHUT_RDWR)

    def close(self) -> None:
        """Closes the connections. The next request opens another one."""
        for connection, _ in self._connections:
            connection.close()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _read(response: http.client.HTTPResponse) -> bytes:
    pieces: List[bytes] = []
    size = 0
    while True:
        piece = response.read(1 << 16)
        if not piece:
            return b"".join(pieces)
        pieces.append(piece)
        size += len(piece)
        if size > LONGEST_ANSWER:
            raise http.client.HTTPException(f"the answer is longer than {LONGEST_ANSWER} bytes")


@contextlib.contextmanager
def _daemons_answer() -> Iterator[None]:
    """An answer that lacks a field is one of another program, such as a proxy."""
    try:
        yield
    except KeyError as error:
        raise http.client.HTTPException(f"the answer is not a daemon's: it has no {error}") from error


def _quoted(name: str) -> str:
    return urllib.parse.quote(name, safe="")


def _item_path(queue: str, id: str) -> str:
    return f"{_quoted(queue)}/items/{_quoted(id)}"


def _batch_path(queue: str, batch: str) -> str:
    return f"{_quoted(queue)}/batches/{_quoted(batch)}"


def _schedule_path(queue: str, name: str) -> str:
    return f"{_quoted(queue)}/schedules/{_quoted(name)}"


def _text(found: Any) -> Optional[str]:
    return None if found is None else str(found)


def _scope(method: str, path: str) -> str:
    """The scope that a request needs."""
    if method == "GET":
        return "read"
    _, *kind = path.split("/")
    if kind[0] in ("lease", "leases"):
        return "work"
    return "push" if method == "POST" and (kind == ["items"] or kind[0] == "batches") else "admin"


def _seconds(duration: Duration) -> float:
    return duration.total_seconds() if isinstance(duration, datetime.timedelta) else duration


def _is_readable(sock: socket.socket) -> bool:
    """Whether the other end has closed an idle connection."""
    with selectors.DefaultSelector() as selector:
        selector.register(sock, selectors.EVENT_READ)
        return bool(selector.select(0))


def _is_temporary(error: BaseException) -> bool:
    """Whether another attempt, or another daemon, may help."""
    if isinstance(error, ApiError):
        # A daemon may be read-only, and a proxy may refuse requests; another one need not.
        return error.status in (403, 408, 429) and not _is_denied(error) or error.status >= 500
    return isinstance(error, (OSError, http.client.HTTPException))


def _is_denied(error: BaseException) -> bool:
    """Whether the access token does not let this worker do so."""
    return isinstance(error, ApiError) and (error.status == 401 or error.code == "forbidden")


def _is_lost(error: BaseException) -> bool:
    return isinstance(error, ApiError) and error.code == "lease_lost"


def _new_item(item: Pushable) -> Json:
    if isinstance(item, (list, tuple)):
        raise TypeError(
            "cannot push a list: it may be several items or one; write push_many(queue, items), or NewItem(items) for one item of JSON"
        )
    new = item if isinstance(item, NewItem) else NewItem(item)
    if new.at is not None and not isinstance(new.at, datetime.datetime):
        raise TypeError(f"at is a {type(new.at).__name__}, {new.at!r}; write a datetime, as datetime.fromisoformat gives")
    found = {
        "unique": new.unique,
        "unique_for_ms": _milliseconds("unique_for", new.unique_for),
        "replace": new.replace or None,
        "batch": new.batch,
        "attributes": dict(new.attributes) if new.attributes is not None else None,
        "content_type": new.content_type,
        "trace_parent": new.trace_parent,
        "priority": new.priority,
        "delay_ms": _milliseconds("delay", new.delay),
        "ttl_ms": _milliseconds("ttl", new.ttl),
        "at": new.at.astimezone(datetime.timezone.utc).isoformat() if new.at is not None else None,
    }
    found.update(_payload(new.payload))
    if new.key is not None:
        found.update(_text_or_base64("key", new.key))
    return {name: value for name, value in found.items() if value is not None}


def _milliseconds(name: str, time: Optional[Duration]) -> Optional[int]:
    if time is None:
        return None
    if isinstance(time, bool) or not isinstance(time, (int, float, datetime.timedelta)):
        raise TypeError(f"{name} is a {type(time).__name__}, {time!r}; write seconds as a number, or a timedelta")
    return int(_seconds(time) * 1000)


def _payload(payload: Payload) -> Json:
    """A payload as a daemon reads it. Text and bytes are stored as they are."""
    if isinstance(payload, (dict, list, tuple)):
        text = json.dumps(payload, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        return {"payload": text}
    if isinstance(payload, (str, bytes, bytearray, memoryview)):
        return _text_or_base64("payload", payload if isinstance(payload, str) else bytes(payload))
    raise TypeError(f"the payload is a {type(payload).__name__}; write a dict or a list (stored as JSON), text, or bytes")


def _text_or_base64(name: str, value: Union[bytes, str]) -> Json:
    try:
        return {name: value if isinstance(value, str) else value.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(bytes(value)).decode()}  # type: ignore[arg-type]


def _bytes(found: Json, name: str) -> Optional[bytes]:
    text, encoded = found.get(name), found.get(f"{name}_base64")
    if text is not None:
        return str(text).encode()
    return None if encoded is None else base64.b64decode(encoded)


def _item_view(found: Json) -> ItemView:
    progress = found.get("progress")
    return ItemView(
        found["id"], found["state"], found.get("outcome"), _bytes(found, "payload"), _bytes(found, "result"),
        progress and Progress(progress["at"], progress.get("percent"), progress.get("message")),
        found.get("attempts"), found.get("reason"), found,
    )


def _item(found: Json, lost: threading.Event) -> Item:
    payload = _bytes(found, "payload") or b""
    attributes, content_type, trace_parent = found.get("attributes", {}), found.get("content_type"), found.get("trace_parent")
    key = _bytes(found, "key")
    return Item(found["id"], found["attempt"], payload, attributes, content_type, trace_parent, lost, key)


class _Pauses:
    """The pauses between attempts: none until each daemon was asked, then growing ones."""

    def __init__(self, daemons: int):
        self._daemons, self.failures = daemons, 0

    def next(self, error: BaseException) -> float:
        self.failures += 1
        if self.failures % self._daemons:
            return 0.0
        rounds = self.failures // self._daemons
        pause = min(PAUSES[0] * 2.0 ** min(rounds - 1, 20), PAUSES[1]) * random.uniform(0.5, 1)
        asked = error.retry_after if isinstance(error, ApiError) else None
        return max(pause, min(asked or 0.0, RETRY_AFTER))

    def reset(self) -> None:
        self.failures = 0


# What a daemon shows of this worker, in ASCII.
_HOST = re.sub(r"[^!-~]", "?", socket.gethostname()) or "?"

# The types that handlers have returned although they are no results: each is in the log once.
_NO_RESULTS: Set[str] = set()


def _result(item: Item, returned: object) -> Json:
    """What a handler has returned, as a daemon reads it."""
    if not isinstance(returned, (str, bytes, bytearray, memoryview)):
        name = type(returned).__name__
        if returned is not None and name not in _NO_RESULTS:
            _NO_RESULTS.add(name)
            log.warning("item %s: the handler has returned a %s, which is ignored: a result is bytes or text", item.id, name)
        return {}
    # Half a surrogate pair is no text for a daemon.
    result = returned.encode("utf-8", "replace") if isinstance(returned, str) else bytes(returned)
    if len(result) > LONGEST_RESULT:
        log.error("item %s: its result has %d bytes, and %d are allowed; it is not kept", item.id, len(result), LONGEST_RESULT)
        return {}
    return _text_or_base64("result", result)


def _outcome(item: Item, error: Optional[BaseException], returned: object = None) -> Json:
    """The outcome of a handler that has returned something, or has raised an error, as a daemon reads it."""
    if error is None:
        return {"id": item.id, "outcome": "done", **_result(item, returned)}
    if isinstance(error, Release):
        return {"id": item.id, "outcome": "release"}
    if isinstance(error, Dead):
        return {"id": item.id, "outcome": "dead", "reason": _reason(error)}
    if isinstance(error, Throttle):
        after = int(min(max(error.after, 0), LONGEST_THROTTLE) * 1000)
        return {
            "id": item.id, "outcome": "throttle", "scope": error.scope, "after_ms": after, "reason": _reason(error),
        }
    found: Json = {"id": item.id, "outcome": "retry", "reason": _reason(error)}
    if not isinstance(error, Retry):
        log.error("item %s failed", item.id, exc_info=error)
        found["reason"] = f"{type(error).__name__}: {found['reason']}"[:LONGEST_REASON]
    elif error.after is not None:
        found["after_ms"] = int(min(max(error.after, 0), LONGEST_AFTER) * 1000)
    return found


def _reason(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception:  # pylint: disable=broad-except
        text = "its text cannot be shown"
    # Half a surrogate pair, as of a file name that is not UTF-8, is no text for a daemon.
    return text.encode("utf-8", "replace").decode()[:LONGEST_REASON]


class _Lease:
    """A lease with the items of it that are not acknowledged. The worker's lock guards it."""

    def __init__(self, id: str, length: float, items: List[Item], began: float, daemons: int):
        # Items that have waited in this process since it came go back, however late it came.
        self.id, self.length, self.came = id, length, time.monotonic()
        # Those without an outcome, by their ids.
        self.unfinished = {item.id: item for item in items}
        self.outcomes: List[Json] = []
        # When the first of the outcomes came.
        self.since = 0.0
        # Set for the handlers: the lease has expired.
        self.lost = items[0].lease_lost
        # A thread has a request for this lease under way.
        self.is_busy = False
        # Acknowledgements that failed: since when, and when to try again.
        self.pauses, self.failing_since, self.retry_at = _Pauses(daemons), 0.0, 0.0
        # When an extension has to tell what handlers have reported, although acknowledgements extend the lease.
        self.report_at = began + length / 3
        self.extended(began)

    @property
    def open(self) -> int:
        """How many of its items are not acknowledged."""
        return len(self.unfinished) + len(self.outcomes)

    def extended(self, since: float) -> None:
        """Its time begins at `since`, no later than the daemon's, so it does not end before the deadline."""
        self.deadline = since + self.length
        self.extend_at = since + self.length / 3

    def is_whole(self) -> bool:
        """Whether the next acknowledgement ends it."""
        return not self.unfinished

    def next_extension(self) -> float:
        """When to extend it."""
        if self.report_at < self.extend_at and any(item._report for item in self.unfinished.values()):
            return self.report_at
        return self.extend_at

    def next_outcomes(self) -> List[Json]:
        """Those of the next request."""
        size = 0
        for count, outcome in enumerate(self.outcomes[:MOST_OUTCOMES]):
            size += len(outcome.get("result", "")) + len(outcome.get("result_base64", ""))
            if count and size > MOST_RESULTS:
                return self.outcomes[:count]
        return self.outcomes[:MOST_OUTCOMES]

    def drop_results(self, count: int) -> bool:
        """Takes the results of its first outcomes away. Whether there were any."""
        names = [(each, name) for each in self.outcomes[:count] for name in ("result", "result_base64") if name in each]
        for each, name in names:
            del each[name]
        return bool(names)

    def acknowledge_at(self, is_stopping: bool) -> float:
        """When its outcomes need not wait for others any longer."""
        if not self.outcomes:
            return math.inf
        is_full = self.is_whole() or len(self.outcomes) >= MOST_OUTCOMES
        return max(self.retry_at, self.since + (0.0 if is_full or is_stopping else LINGER))


class _Core:
    """Leases items in one thread, and acknowledges and extends leases in some others.

    So a handler that blocks stops no extension. Subclasses run the handlers.
    """

    def __init__(
        self,
        url: Union[str, Iterable[str]],
        queue: str,
        concurrency: int,
        batch: int,
        lease: Optional[float],
        wait: float,
        token: Optional[str],
        ca_file: Optional[str],
    ):
        if not isinstance(concurrency, int) or not isinstance(batch, int) or concurrency < 1 or not 1 <= batch <= 1000:
            raise ValueError("concurrency is a whole number from 1, and batch one from 1 to 1000")
        urls = [url] if isinstance(url, str) else list(url)
        self._queue, self._concurrency, self._batch, self._length, self._wait = queue, concurrency, batch, lease, wait
        self._fetcher, *self._keepers = (Client(urls, token, ca_file) for _ in range(1 + KEEPERS))
        self._daemons = len(urls)
        self._failure: Optional[BaseException] = None
        self._stopping = threading.Event()
        self._stopped_at = 0.0
        self._is_fetching = True
        self._lock = threading.Lock()
        # One condition for each kind of thread, on the same lock.
        self._news_items, self._news_room, self._news_leases = (threading.Condition(self._lock) for _ in range(3))
        # Items that no handler has begun with.
        self._waiting: Deque[Tuple[_Lease, Item]] = collections.deque()
        self._running = 0
        self._leases: Dict[str, _Lease] = {}
        # How long a handler takes on average, in seconds; None before the first item.
        self._average: Optional[float] = None

    def stop(self) -> None:
        """Lets the worker end: running items are finished, and the others go back. Any thread may call it."""
        self._stopped_at = time.monotonic()
        self._stopping.set()
        self._fetcher.interrupt()
        with self._lock:
            for lease in self._leases.values():
                lease.retry_at = min(lease.retry_at, self._stopped_at + STOP_PAUSE)
            self._give_back(self._waiting)
            self._notify_all()

    def _notify_all(self) -> None:
        for news in (self._news_items, self._news_room, self._news_leases):
            news.notify_all()

    def _items_came(self) -> None:
        """Lets handlers begin. The lock is held."""
        self._news_items.notify_all()

    def _lease_ended(self, lease: _Lease) -> None:
        """A lease has expired or is lost. The lock is held."""

    def _items_cancelled(self, items: List[Item]) -> None:
        """Items were cancelled, whose handlers may run. The lock is held."""

    def _start(self, *handlers: Callable[[], None]) -> List[threading.Thread]:
        threads = []
        for target in (self._fetch, *[self._keep] * KEEPERS, *handlers):
            thread = threading.Thread(target=self._guarded, args=(target,), name=f"kvqueue{target.__name__}", daemon=True)
            thread.start()
            threads.append(thread)
        return threads

    def _guarded(self, target: Callable[[], None]) -> None:
        try:
            target()
        except BaseException as error:  # pylint: disable=broad-except
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        """The worker stops, and ends with an error."""
        if self._failure is None:
            self._failure = error
        self.stop()

    # Leasing

    def _fetch(self) -> None:
        pauses = _Pauses(self._daemons)
        try:
            with self._fetcher as client:
                while True:
                    wanted = self._room()
                    if not wanted:
                        return
                    asked = time.monotonic()
                    try:
                        found = client._lease(self._queue, wanted, self._wait, self._length)
                    except Exception as error:
                        if self._stopping.is_set():
                            return
                        if not _is_temporary(error):
                            raise
                        pause = pauses.next(error)
                        log.warning("cannot lease items, trying again in %.1f s: %s", pause, error)
                        self._stopping.wait(pause)
                        continue
                    pauses.reset()
                    if found[0] is not None:
                        self._add(_Lease(found[0], found[1], found[2], found[3], self._daemons), found[2])
                    elif time.monotonic() - asked < min(1.0, max(0.1, self._wait / 2)):
                        client._ask_next()
                        self._stopping.wait(EMPTY_PAUSE)
        finally:
            with self._lock:
                self._is_fetching = False
                self._notify_all()

    def _room(self) -> int:
        """How many items to lease, when there is room for some. 0 when the worker stops."""
        with self._lock:
            while not self._stopping.is_set():
                ahead = 0
                if self._average is not None:
                    ahead = min(self._batch, int(self._concurrency * AHEAD / max(self._average, 1e-6)))
                room = max(0, self._concurrency - self._running) + ahead
                finished = sum(len(lease.outcomes) for lease in self._leases.values())
                have = len(self._waiting)
                if finished < UNACKNOWLEDGED and have < room and have * 2 <= room:
                    return min(self._batch, room - have)
                self._news_room.wait()
            return 0

    def _add(self, lease: _Lease, items: List[Item]) -> None:
        with self._lock:
            self._leases[lease.id] = lease
            self._waiting.extend((lease, item) for item in items)
            if self._stopping.is_set():
                self._give_back(self._waiting)
            self._news_leases.notify()
            self._items_came()

    def _give_back(self, waiting: Deque[Tuple[_Lease, Item]], came_before: float = float("inf")) -> None:
        """Releases items that no handler has begun with, if they were leased before some time. The lock is held."""
        while waiting and waiting[0][0].came < came_before:
            lease, item = waiting.popleft()
            self._record(lease, _outcome(item, Release()))

    # Handling

    def _take(self, waits: bool) -> Optional[Tuple[_Lease, Item]]:
        """The next item. None if the worker stops, or if there is none and this does not wait."""
        with self._lock:
            while True:
                while self._waiting:
                    lease, item = self._waiting.popleft()
                    if time.monotonic() < lease.deadline and not lease.lost.is_set():
                        self._running += 1
                        return lease, item
                    # Another worker may have it by now.
                    self._record(lease, _outcome(item, Release()))
                self._news_room.notify()
                if self._stopping.is_set() or not waits:
                    return None
                self._news_items.wait()

    def _finished(self, lease: _Lease, item: Item, error: Optional[BaseException], returned: object, took: float) -> None:
        # How a cancelled item ends does not count, nor need it be in the log.
        outcome = _outcome(item, Release() if item.cancelled.is_set() else error, returned)
        with self._lock:
            self._running -= 1
            self._average = took if self._average is None else self._average + (took - self._average) / 8
            self._record(lease, outcome)
            self._news_room.notify()

    def _record(self, lease: _Lease, outcome: Json) -> None:
        """Keeps an outcome to be acknowledged, unless its item was cancelled. The lock is held."""
        if lease.id not in self._leases or lease.unfinished.pop(outcome["id"], None) is None:
            return
        if not lease.outcomes:
            lease.since = time.monotonic()
        lease.outcomes.append(outcome)
        if len(lease.outcomes) in (1, MOST_OUTCOMES) or lease.is_whole():
            # The time of its acknowledgement has changed.
            self._news_leases.notify()

    # Acknowledging and extending

    def _keep(self) -> None:
        with self._keepers.pop() as client:
            while True:
                due = self._next_due()
                if due is None:
                    return
                lease, outcomes = due
                asked, timeout = time.monotonic(), min(max(2.0, lease.length / 3), TIMEOUT)
                try:
                    if outcomes:
                        cancelled = client.acknowledge(self._queue, lease.id, outcomes, timeout=timeout)
                    else:
                        items = list(lease.unfinished.copy().values())
                        cancelled = client.extend(self._queue, lease.id, timeout, items)
                except Exception as error:  # pylint: disable=broad-except
                    if _is_denied(error):
                        self._fail(error)
                    with self._lock:
                        self._refused(lease, len(outcomes), error)
                else:
                    with self._lock:
                        self._accepted(lease, len(outcomes), asked, cancelled)

    def _next_due(self) -> Optional[Tuple[_Lease, List[Json]]]:
        """Waits for the next lease that is due: to acknowledge some outcomes, or without them, to extend it. None at the end."""
        with self._lock:
            while not self._is_over():
                now, is_stopping = time.monotonic(), self._stopping.is_set()
                if self._waiting and self._waiting[0][0].came <= now - STUCK:
                    # The running items take longer than expected.
                    self._average = max(self._average or 0.0, STUCK)
                    self._give_back(self._waiting, now - STUCK + 0.001)
                first, lease = self._waiting[0][0].came + STUCK if self._waiting else math.inf, None
                for each in self._leases.values():
                    at = math.inf if each.is_busy else min(each.next_extension(), each.acknowledge_at(is_stopping))
                    if at < first:
                        first, lease = at, each
                if lease is not None and first <= now:
                    lease.is_busy = True
                    # So that another thread waits for the next one meanwhile.
                    self._news_leases.notify()
                    return lease, lease.next_outcomes() if lease.acknowledge_at(is_stopping) <= now else []
                self._news_leases.wait(None if first == math.inf else max(0.0, first - now))
            return None

    def _is_over(self) -> bool:
        return self._stopping.is_set() and not self._is_fetching and not self._leases

    def _accepted(self, lease: _Lease, count: int, asked: float, cancelled: List[str]) -> None:
        """A daemon has acknowledged `count` outcomes of a lease, which also extends it. The lock is held."""
        lease.is_busy = False
        lease.extended(asked)
        if count:
            del lease.outcomes[:count]
            lease.since, lease.retry_at = time.monotonic(), 0.0
            lease.pauses.reset()
            self._news_room.notify()
        else:
            lease.report_at = lease.extend_at
        if cancelled:
            self._cancel_items(lease, cancelled)
        if lease.open == 0:
            self._forget(lease)

    def _cancel_items(self, lease: _Lease, ids: List[str]) -> None:
        """Tells the handlers of cancelled items, which are no part of the lease any more. The lock is held."""
        items = [item for item in (lease.unfinished.pop(id, None) for id in ids) if item is not None]
        for item in items:
            item.cancelled.set()
        self._waiting = collections.deque(each for each in self._waiting if not each[1].cancelled.is_set())
        if items:
            self._items_cancelled(items)
            self._notify_all()

    def _refused(self, lease: _Lease, count: int, error: Exception) -> None:
        """An acknowledgement of `count` outcomes has failed, or without outcomes, an extension. The lock is held."""
        lease.is_busy = False
        now, has_failed, name = time.monotonic(), lease.pauses.failures > 0, f"queue {self._queue}: lease {lease.id}"
        if _is_denied(error):
            for each in list(self._leases.values()):
                self._forget(each)
        elif _is_lost(error) and has_failed and lease.is_whole():
            # An earlier request may have acknowledged its last items: the answer to the next acknowledgement decides.
            lease.extend_at = lease.report_at = math.inf
            if count:
                self._forget(lease)
        elif _is_lost(error):
            self._expire(lease)
            self._forget(lease)
        elif not count:
            log.warning("%s: cannot extend it: %s", name, error)
            lease.report_at = lease.extend_at = now + min(max(0.1, lease.length / 10), 1.0)
        elif isinstance(error, ApiError) and error.status == 413 and lease.drop_results(count):
            log.error("%s: its results are not kept: %s", name, error)
        elif not _is_temporary(error) or self._is_late(lease, now):
            log.warning("%s: cannot acknowledge %d items; they will be redelivered: %s", name, count, error)
            self._forget(lease)
        else:
            lease.failing_since = lease.failing_since if has_failed else now
            pause = lease.pauses.next(error)
            pause = min(pause, STOP_PAUSE) if self._stopping.is_set() else pause
            lease.retry_at = now + pause
            log.warning("%s: cannot acknowledge, trying again in %.1f s: %s", name, pause, error)
        if now >= lease.deadline:
            self._expire(lease)

    def _is_late(self, lease: _Lease, now: float) -> bool:
        """Whether the worker stops, and has tried for long enough."""
        is_failing = lease.pauses.failures > 0
        return self._stopping.is_set() and is_failing and now - max(lease.failing_since, self._stopped_at) > STOP_PATIENCE

    def _expire(self, lease: _Lease) -> None:
        """Tells the handlers that other workers may have the items of a lease. The lock is held.

        Its outcomes are still tried: they count if no daemon has noticed.
        """
        if lease.id in self._leases and not lease.lost.is_set():
            log.warning("queue %s: lease %s expired; its unacknowledged items will be redelivered", self._queue, lease.id)
            self._end_handlers(lease)

    def _forget(self, lease: _Lease) -> None:
        """Ends a lease: all of its items are acknowledged, or the lease is lost. The lock is held."""
        if self._leases.pop(lease.id, None) is None:
            return
        if lease.open:
            self._end_handlers(lease)
        self._notify_all()

    def _end_handlers(self, lease: _Lease) -> None:
        """Tells the handlers of a lease, and releases the items that none has begun with. The lock is held."""
        lease.extend_at = lease.report_at = math.inf
        lease.lost.set()
        waiting, self._waiting = self._waiting, collections.deque()
        for its, item in waiting:
            if its is lease:
                self._record(lease, _outcome(item, Release()))
            else:
                self._waiting.append((its, item))
        self._news_room.notify()
        self._lease_ended(lease)


class Worker(_Core):
    """Leases items and handles them in threads, until it is stopped.

    `concurrency` items are handled at a time. `batch` is the most items of a lease; a worker leases as many as it
    handles in about a second. `lease` is the length of a lease in seconds, by default the queue's. `wait` is how
    long a request for items waits at the daemon. The other arguments are those of Client.
    """

    def __init__(
        self,
        url: Union[str, Iterable[str]],
        queue: str,
        handle: Callable[[Item], object],
        *,
        concurrency: int = 1,
        batch: int = 100,
        lease: Optional[float] = None,
        wait: float = 20.0,
        token: Optional[str] = None,
        ca_file: Optional[str] = None,
    ):
        if inspect.iscoroutinefunction(handle):
            raise TypeError("the handler is a coroutine function: use work_async or AsyncWorker")
        super().__init__(url, queue, concurrency, batch, lease, wait, token, ca_file)
        self._handle = handle

    def run(self) -> None:
        """Works until it is stopped. An ApiError if the daemon does not let this worker do so."""
        for thread in self._start(*[self._work] * self._concurrency):
            # With a time limit, so that signals are handled meanwhile.
            while thread.is_alive():
                thread.join(1)
        if self._failure is not None:
            raise self._failure

    def _work(self) -> None:
        while True:
            taken = self._take(waits=True)
            if taken is None:
                return
            lease, item = taken
            began, returned = time.monotonic(), None
            error: Optional[BaseException] = None
            try:
                returned = self._handle(item)
            except BaseException as raised:  # pylint: disable=broad-except
                error = raised
            self._finished(lease, item, error, returned, time.monotonic() - began)
            if error is not None and not isinstance(error, Exception):
                # The handler wants to end the program.
                raise error


def _resolve(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)


class AsyncWorker(_Core):
    """Leases items and handles them in tasks of the running event loop, until it is stopped. See Worker.

    If a lease expires, the tasks that handle its items are cancelled; so is the task of an item that was cancelled.
    """

    def __init__(
        self,
        url: Union[str, Iterable[str]],
        queue: str,
        handle: Callable[[Item], Awaitable[object]],
        *,
        concurrency: int = 10,
        batch: int = 100,
        lease: Optional[float] = None,
        wait: float = 20.0,
        token: Optional[str] = None,
        ca_file: Optional[str] = None,
    ):
        super().__init__(url, queue, concurrency, batch, lease, wait, token, ca_file)
        self._handle = handle
        self._tasks: Dict["asyncio.Task[None]", Tuple[_Lease, Item]] = {}

    async def run(self) -> None:
        """Works until it is stopped. An ApiError if the daemon does not let this worker do so."""
        self._loop = asyncio.get_running_loop()
        threads, ended = self._start(), self._loop.create_future()
        threading.Thread(target=self._join, args=(threads, ended), name="kvqueue_join", daemon=True).start()
        try:
            await asyncio.shield(ended)
        except asyncio.CancelledError:
            self.stop()
            await ended
            raise
        finally:
            # Only tasks of lost leases are left.
            await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._failure is not None:
            raise self._failure

    def _join(self, threads: List[threading.Thread], ended: "asyncio.Future[None]") -> None:
        for thread in threads:
            thread.join()
        # The loop may be closed by then, if the program ends early.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(_resolve, ended)

    def _items_came(self) -> None:
        self._loop.call_soon_threadsafe(self._begin)

    def _lease_ended(self, lease: _Lease) -> None:
        self._loop.call_soon_threadsafe(self._cancel, lease)

    def _cancel(self, lease: _Lease) -> None:
        for task, (its, _) in tuple(self._tasks.items()):
            if its is lease:
                task.cancel()

    def _items_cancelled(self, items: List[Item]) -> None:
        self._loop.call_soon_threadsafe(self._cancel_tasks, items)

    def _cancel_tasks(self, items: List[Item]) -> None:
        for task, (_, item) in tuple(self._tasks.items()):
            if any(item is each for each in items):
                task.cancel()

    def _begin(self) -> None:
        """Starts as many tasks as may run."""
        while len(self._tasks) < self._concurrency:
            taken = self._take(waits=False)
            if taken is None:
                return
            task = self._loop.create_task(self._work(*taken))
            self._tasks[task] = taken
            task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        lease, item = self._tasks.pop(task)
        if task.cancelled():
            # Before its first step.
            self._finished(lease, item, Release(), None, 0.0)
        elif task.exception() is not None:
            self._fail(task.exception() or RuntimeError())
        self._begin()

    async def _work(self, lease: _Lease, item: Item) -> None:
        began, returned = time.monotonic(), None
        error: Optional[BaseException] = None
        try:
            returned = await self._handle(item)
        except asyncio.CancelledError as raised:
            # Not the item's fault if its lease has expired.
            error = Release() if lease.lost.is_set() else raised
        except BaseException as raised:  # pylint: disable=broad-except
            error = raised
        self._finished(lease, item, error, returned, time.monotonic() - began)
        if error is not None and not isinstance(error, (Exception, asyncio.CancelledError)):
            # The handler wants to end the program.
            raise error


def work(url: Union[str, Iterable[str]], queue: str, handle: Callable[[Item], object], **options: Any) -> None:
    """Handles the items of a queue until SIGTERM or SIGINT. The options are those of Worker.

    The first signal lets running items finish and gives the others back. A second one ends the program at once.
    """
    worker = Worker(url, queue, handle, **options)
    former = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

    def on_signal(*_: object) -> None:
        restore()
        # Not here: the main thread may hold the lock that this takes.
        threading.Thread(target=worker.stop, name="kvqueue_stop").start()

    def restore() -> None:
        for number, handler in former.items():
            signal.signal(number, handler)

    for number in former:
        signal.signal(number, on_signal)
    try:
        worker.run()
    finally:
        restore()


async def work_async(
    url: Union[str, Iterable[str]], queue: str, handle: Callable[[Item], Awaitable[object]], **options: Any
) -> None:
    """The same as `work` with a handler that is a coroutine function. The options are those of AsyncWorker."""
    worker = AsyncWorker(url, queue, handle, **options)
    loop, numbers = asyncio.get_running_loop(), (signal.SIGTERM, signal.SIGINT)

    def on_signal() -> None:
        restore()
        worker.stop()

    def restore() -> None:
        for number in numbers:
            loop.remove_signal_handler(number)

    # A handler of the module `signal` would run only when something else wakes the loop.
    for number in numbers:
        loop.add_signal_handler(number, on_signal)
    try:
        await worker.run()
    finally:
        restore()
