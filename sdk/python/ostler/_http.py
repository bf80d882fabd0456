"""HTTP/1.1 and server-sent events as pure functions of bytes: both clients share them, and only their sockets differ."""

from __future__ import annotations

import json
from typing import Any, NamedTuple, Optional
from urllib.parse import quote, urlencode, urlsplit

from ._errors import Invalid, OstlerError, Unreachable

# The API's limit for a body.
MAX_BODY_BYTES = 64 << 20
# More is no answer of this API.
MAX_HEAD_BYTES = 64 * 1024
MAX_ANSWER_BYTES = 512 << 20
# The longest line of results, and the largest event.
MAX_LINE_BYTES = 64 << 20
DEFAULT_URL = "http://127.0.0.1:7700"


class Address(NamedTuple):
    """Where a node listens."""

    scheme: str
    """``http``, ``https`` or ``unix``."""
    host: str
    port: int
    base_path: str
    shown: str

    @property
    def host_header(self) -> str:
        if self.scheme == "unix":
            return "localhost"
        host = f"[{self.host}]" if ":" in self.host else self.host
        usual = 443 if self.scheme == "https" else 80
        return host if self.port == usual else f"{host}:{self.port}"


def address(url: str) -> Address:
    """Reads ``http://host:port/base``, ``https://…`` or ``unix:/path/api.sock``."""
    if url.startswith("unix:"):
        path = url[len("unix:") :]
        if not path:
            raise Invalid("invalid", "url: a Unix socket needs a path, such as unix:/run/ostler/api.sock", {"field": "url"})
        return Address("unix", path, 0, "", url)
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise Invalid("invalid", f"url: {error}", {"field": "url"}) from error
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment or parts.username:
        expected = "expected http://HOST:PORT, https://HOST, with a base path or without, or unix:PATH"
        raise Invalid("invalid", f"url: {expected}", {"field": "url"})
    port = port or (443 if parts.scheme == "https" else 80)
    return Address(parts.scheme, parts.hostname, port, parts.path.rstrip("/"), url)


class Request(NamedTuple):
    """One request. ``repeatable``: sending it twice does no harm, so a lost answer may be asked for again."""

    method: str
    path: str
    body: Optional[bytes] = None
    headers: "tuple[tuple[str, str], ...]" = ()
    repeatable: bool = False
    wait_s: float = 0.0
    """How long the node may take on top of the client's timeout: a long poll."""


class Answer(NamedTuple):
    status: int
    headers: "dict[str, str]"
    body: bytes

    def json(self) -> Any:
        try:
            return json.loads(self.body) if self.body.strip() else None
        except (ValueError, RecursionError) as error:
            if self.status >= 300:
                return None
            message = "the answer is not JSON; is there an Ostler node at this address?"
            raise OstlerError("not_json", message, None, self.status) from error


class Lost(Exception):
    """The connection was refused, lost or too slow. ``unknown``: nothing has ever answered at the address."""

    def __init__(self, why: str, unknown: bool = False) -> None:
        super().__init__(why)
        self.why = why
        self.unknown = unknown


def path_of(*parts: str, query: "Optional[dict[str, Any]]" = None) -> str:
    """A path below ``/api/v1``, with everything in its parts quoted. Options that are ``None`` are left out."""
    path = "/api/v1/" + "/".join(_part(part) for part in parts)
    pairs = [(name, _query_text(value)) for name, value in (query or {}).items() if value is not None]
    return f"{path}?{urlencode(pairs)}" if pairs else path


def _part(part: str) -> str:
    if part in ("", ".", ".."):
        raise Invalid("invalid", f"{part!r} is no name", {"field": "path"})
    return quote(part, safe=":")


def _query_text(value: Any) -> str:
    return ("true" if value else "false") if isinstance(value, bool) else str(value)


def json_body(value: Any) -> bytes:
    """JSON as Python has it: whole numbers of any size, and text as it is. What JSON or the API cannot take is refused here."""
    try:
        body = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise Invalid("invalid", f"this cannot be sent as JSON: {error}") from error
    if len(body) > MAX_BODY_BYTES:
        raise Invalid("too_large", f"a body has at most {MAX_BODY_BYTES} bytes, and this one has {len(body)}")
    return body


def request_bytes(request: Request, to: Address, token: Optional[str], connection: str) -> bytes:
    """The whole request. ``connection`` is ``keep-alive`` or ``close``."""
    headers = [("Host", to.host_header), ("Connection", connection), ("Accept", "application/json, text/event-stream")]
    if token is not None:
        headers.append(("Authorization", f"Bearer {token}"))
    if request.body is not None:
        headers.append(("Content-Type", "application/json"))
    if request.body is not None or request.method != "GET":
        headers.append(("Content-Length", str(len(request.body or b""))))
    lines = [f"{request.method} {to.base_path}{request.path} HTTP/1.1"]
    for name, value in (*headers, *request.headers):
        if not value.isascii() or not value.isprintable():
            raise Invalid("invalid", f"the header {name} may have printable ASCII only", {"field": name})
        lines.append(f"{name}: {value}")
    if not lines[0].isascii() or not lines[0].isprintable():
        raise Invalid("invalid", "the path may have printable ASCII only", {"field": "path"})
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + (request.body or b"")


class AnswerReader:
    """Reads one answer from bytes as they come: first its head, then pieces of its body."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.done = False
        self._buffer = bytearray()
        self._left: Optional[int] = None
        """Bytes that are left of the body or of a chunk; ``None``: up to the end of the connection."""
        self._chunked = False
        self._expects = "head"

    @property
    def reusable(self) -> bool:
        """Whether the connection can have another request."""
        return self.done and not self._buffer and self._left is not None and self.headers.get("connection", "").lower() != "close"

    def feed(self, data: bytes) -> bytes:
        """Takes what the socket had; empty: its end. Returns what is there of the body by now."""
        if not data:
            if self.status and self._expects == "body" and self._left is None:
                self.done = True
            if not self.done:
                raise Lost("the connection was cut in the middle of an answer" if self.status else "the connection was closed")
            return b""
        self._buffer += data
        body = bytearray()
        while not self.done and self._advance(body):
            pass
        return bytes(body)

    def _advance(self, body: bytearray) -> bool:
        """One step; false: more bytes are needed."""
        if self._expects == "head":
            return self._head()
        if self._expects == "body":
            size = len(self._buffer) if self._left is None else min(self._left, len(self._buffer))
            body += self._take(size)
            if self._left is None:
                return False
            self._left -= size
            if self._left:
                return False
            self._expects = "gap" if self._chunked else "body"
            self.done = not self._chunked
            return True
        line = self._line()
        if line is None:
            return False
        if self._expects == "size":
            try:
                self._left = int(line.split(b";")[0].strip() or b"-", 16)
            except ValueError:
                raise Lost("the answer is no HTTP: a chunk has no size") from None
            self._expects = "body" if self._left else "trailer"
        elif self._expects == "gap":
            self._expects = "size"
        else:
            self.done = not line
        return True

    def _head(self) -> bool:
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            if len(self._buffer) > MAX_HEAD_BYTES:
                raise Lost("the answer has too long a head")
            return False
        first, *lines = self._take(end + 4)[:-4].decode("latin-1").split("\r\n")
        words = first.split(" ", 2)
        if len(words) < 2 or not words[0].startswith("HTTP/1.") or not words[1].isdigit():
            raise Lost("the answer is no HTTP")
        status = int(words[1])
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        if status < 200:
            return True
        self.status, self.headers = status, headers
        self._chunked = headers.get("transfer-encoding", "").lower() == "chunked"
        length = headers.get("content-length")
        if status in (204, 304):
            self._left, self.done = 0, True
        elif self._chunked:
            self._left, self._expects = 0, "size"
        else:
            if length is not None and not length.isdigit():
                raise Lost("the answer has a wrong length")
            self._left, self._expects = (None if length is None else int(length)), "body"
            self.done = self._left == 0
        return True

    def _line(self) -> Optional[bytes]:
        end = self._buffer.find(b"\n")
        if end < 0:
            if len(self._buffer) > MAX_HEAD_BYTES:
                raise Lost("the answer has too long a line between two chunks")
            return None
        return self._take(end + 1).rstrip(b"\r\n")

    def _take(self, size: int) -> bytes:
        taken = bytes(self._buffer[:size])
        del self._buffer[:size]
        return taken


class LineReader:
    """Splits pieces into lines."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, piece: bytes) -> "list[bytes]":
        self._rest += piece
        *lines, rest = self._rest.split(b"\n")
        self._rest = bytearray(rest)
        if len(rest) > MAX_LINE_BYTES:
            raise Lost("a line of the answer is too long")
        return [bytes(line).rstrip(b"\r") for line in lines]


class ServerEvent(NamedTuple):
    name: str
    data: str
    id: Optional[str]


class EventReader:
    """Reads server-sent events from pieces of any size."""

    def __init__(self) -> None:
        self._lines = LineReader()
        self._name = ""
        self._data: list[str] = []
        self._id: Optional[str] = None

    def feed(self, piece: bytes) -> "list[ServerEvent]":
        events: list[ServerEvent] = []
        for line in self._lines.feed(piece):
            if not line:
                if self._data or self._name:
                    events.append(ServerEvent(self._name or "message", "\n".join(self._data), self._id))
                self._name, self._data, self._id = "", [], None
                continue
            field, _, value = line.decode("utf-8", "replace").partition(":")
            value = value[1:] if value.startswith(" ") else value
            if field == "data":
                self._data.append(value)
            elif field == "event":
                self._name = value
            elif field == "id":
                self._id = value
        return events


def unreachable(to: Address, why: str) -> Unreachable:
    message = f"no answer from {to.shown}: {why}. Is the node running? Start it with `ostler up`, or give its address as url= or OSTLER_SERVER"
    return Unreachable("unreachable", message, {"address": to.shown})
