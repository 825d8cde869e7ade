"""Who may talk to the studio, and how much they may say: it stands before every route.

A page on another site can make a browser send requests to this machine. So a request must name this server as its host
(against names that are pointed here from outside), must not come from another site, and a POST must be JSON, which
other sites cannot send without asking first. Where other machines can reach the server, a token is asked for too.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import json
import socket
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qsl, urlencode

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

BODY = 256 * 1024  # bytes of a request
BODY_SECONDS = 20.0  # for a request to arrive
_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
_HEADERS = {
    # Scripts and data come from here alone; pictures may also be made by the page itself.
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data: blob:; font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "x-frame-options": "DENY",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
}


@dataclass(frozen=True)
class Place:
    """Where the server listens.

    host    the address it is bound to
    port    the port it got
    token   what must be known to get in; None on loopback, where only this machine's users come
    """

    host: str
    port: int
    token: str | None = None

    @property
    def cookie(self) -> str:
        return f"clearhead-{self.port}"  # cookies do not tell ports apart, names do

    @property
    def url(self) -> str:
        """What to open in a browser, with the token where there is one."""
        name = {"0.0.0.0": socket.gethostname(), "::": socket.gethostname()}.get(self.host, self.host)
        name = f"[{name}]" if ":" in name else name
        return f"http://{name}:{self.port}/" + (f"?token={self.token}" if self.token else "")

    def knows(self, host: str) -> bool:
        """Whether this `Host` header names this server. A foreign name may lead here; an address can only be ours."""
        name, _, port = host.lower().rpartition(":")
        if not name or port != str(self.port):  # browsers leave out port 80
            name, port = host.lower(), "80"
        if port != str(self.port):
            return False
        own = self.host.lower()
        if name in (own, f"[{own}]") or (is_loopback(own) and name in _LOOPBACK):
            return True
        if own in ("0.0.0.0", "::"):
            machine = socket.gethostname().lower()
            return name in (*_LOOPBACK, machine, f"{machine}.local") or _is_address(name)
        return False


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach that address."""
    if host.lower() == "localhost":
        return True
    return _is_address(host) and ipaddress.ip_address(host.strip("[]")).is_loopback


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


class _RefusedError(Exception):
    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status, self.message = status, message


class Guard:
    """Wraps an ASGI app."""

    def __init__(self, app: App, place: Place, body: int = BODY) -> None:
        self.app, self.place, self.body = app, place, body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":  # there are no web sockets here
            await send({"type": "websocket.close", "code": 1008})
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = {name.lower() for name, _ in message["headers"]}
                extra = [(n.encode(), v.encode()) for n, v in _HEADERS.items() if n.encode() not in given]
                message = {**message, "headers": [*message["headers"], *extra]}
            await send(message)

        headers = _headers(scope)
        try:
            self._check_sender(scope, headers)
            if self.place.token is not None and not self._has_cookie(headers):
                await self._ask_for_token(scope, send_guarded)
                return
            receive = await self._read(scope, headers, receive)
        except _RefusedError as refused:
            await _answer(send_guarded, refused.status, {"error": {"message": refused.message}})
            return
        await self.app(scope, receive, send_guarded)

    def _check_sender(self, scope: Scope, headers: dict[str, list[str]]) -> None:
        method = scope["method"]
        if method not in ("GET", "HEAD", "POST"):
            raise _RefusedError(405, f"{method} is not understood here: only GET and POST are.")
        hosts = headers.get("host", [])
        if len(hosts) != 1 or not self.place.knows(hosts[0]):
            raise _RefusedError(421, "This server does not go by that name. Open the address that it printed.")
        for origin in headers.get("origin", []):
            if origin.lower() != f"http://{hosts[0].lower()}":
                raise _RefusedError(403, "Requests from another site are refused.")
        site = headers.get("sec-fetch-site", ["none"])[0]
        visits = method == "GET" and headers.get("sec-fetch-mode") == ["navigate"]
        if site not in ("none", "same-origin") and not (visits and not scope["path"].startswith(("/api", "/static"))):
            raise _RefusedError(403, "Requests from another site are refused.")
        if method == "POST":
            kinds = headers.get("content-type", [])
            if len(kinds) != 1 or kinds[0].split(";")[0].strip().lower() != "application/json":
                raise _RefusedError(415, "Send JSON, with the header content-type: application/json.")

    def _has_cookie(self, headers: dict[str, list[str]]) -> bool:
        for line in headers.get("cookie", []):
            try:
                found = SimpleCookie(line).get(self.place.cookie)
            except CookieError:
                continue
            if found is not None and self._is_token(found.value):
                return True
        return False

    def _is_token(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(errors="replace"), (self.place.token or "").encode())

    async def _ask_for_token(self, scope: Scope, send: Send) -> None:
        """A visit with the right token gets the cookie and goes on without it in the address; others are told."""
        query = parse_qsl(scope.get("query_string", b"").decode("latin-1"), keep_blank_values=True)
        given = [value for name, value in query if name == "token"]
        if scope["method"] == "GET" and len(given) == 1 and self._is_token(given[0]):
            rest = urlencode([(name, value) for name, value in query if name != "token"])
            path = "/" + scope["path"].lstrip("/\\")  # `//elsewhere` would lead to another site
            raw = path.encode("ascii", errors="ignore").decode() + (f"?{rest}" if rest else "")
            cookie = f"{self.place.cookie}={self.place.token}; HttpOnly; SameSite=Strict; Path=/"
            await _answer(send, 303, None, {"location": raw, "set-cookie": cookie, "cache-control": "no-store"})
            return
        message = "This studio asks for a token: open the whole address that `clearhead studio` printed."
        await _answer(send, 401, {"error": {"message": message}})

    async def _read(self, scope: Scope, headers: dict[str, list[str]], receive: Receive) -> Receive:
        """The body, read up to its limit; the app gets it as one message, and afterwards whatever comes."""
        if scope["method"] != "POST":
            return receive
        too_long = _RefusedError(413, f"The request is too long: at most {self.body:,} bytes are read.")
        said = headers.get("content-length", ["0"])[0]
        if not said.isascii() or not said.isdigit() or int(said[:20]) > self.body:
            raise too_long
        parts, size, more = [], 0, True
        try:
            async with asyncio.timeout(BODY_SECONDS):
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise _RefusedError(400, "The request ended before it was complete.")
                    parts.append(message.get("body", b""))
                    size += len(parts[-1])
                    more = message.get("more_body", False)
                    if size > self.body:
                        raise too_long
        except TimeoutError:
            raise _RefusedError(408, "The request took too long to arrive.") from None
        waiting = [{"type": "http.request", "body": b"".join(parts), "more_body": False}]

        async def replay() -> Message:
            return waiting.pop() if waiting else await receive()

        return replay


def _headers(scope: Scope) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, value in scope["headers"]:
        found.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
    return found


async def _answer(send: Send, status: int, content: Any, headers: dict[str, str] | None = None) -> None:
    body = b"" if content is None else json.dumps(content).encode()
    told = {"content-type": "application/json", "content-length": str(len(body)), **(headers or {})}
    if status >= 400:
        told["connection"] = "close"  # what is left of a refused request is not read
    pairs = [(name.encode(), value.encode("latin-1")) for name, value in told.items()]
    await send({"type": "http.response.start", "status": status, "headers": pairs})
    await send({"type": "http.response.body", "body": body})
