"""Who may talk to the server, and how much they may say: it stands before every route.

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

from clearhead.messages import Message, say
from clearhead.server.errors import error_body

Scope = MutableMapping[str, Any]
AsgiMessage = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[AsgiMessage]]
Send = Callable[[AsgiMessage], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

BODY_BYTES = 256 * 1024  # of a request
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
class ServerAddress:
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

    def accepts_host(self, host: str) -> bool:
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
    def __init__(self, status: int, message: Message) -> None:
        super().__init__(message)
        self.status, self.message = status, message


class Guard:
    """Wraps an ASGI app. Pages may be visited from a link on another site; what begins with `own` may not."""

    def __init__(
        self,
        app: App,
        address: ServerAddress,
        max_body: int = BODY_BYTES,
        own_paths: tuple[str, ...] = ("/api", "/static"),
    ) -> None:
        self.app, self.address, self.max_body, self.own = app, address, max_body, own_paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":  # there are no web sockets here
            await send({"type": "websocket.close", "code": 1008})
            return

        async def send_guarded(message: AsgiMessage) -> None:
            if message["type"] == "http.response.start":
                present = {name.lower() for name, _ in message["headers"]}
                extra = [(n.encode(), v.encode()) for n, v in _HEADERS.items() if n.encode() not in present]
                message = {**message, "headers": [*message["headers"], *extra]}
            await send(message)

        headers = _headers(scope)
        try:
            self._check_sender(scope, headers)
            if self.address.token is not None and not self._has_cookie(headers):
                await self._ask_for_token(scope, send_guarded)
                return
            receive = await self._read(scope, headers, receive)
        except _RefusedError as refused:
            await _answer(send_guarded, refused.status, error_body(refused.message))
            return
        await self.app(scope, receive, send_guarded)

    def _check_sender(self, scope: Scope, headers: dict[str, list[str]]) -> None:
        method = scope["method"]
        if method not in ("GET", "HEAD", "POST"):
            raise _RefusedError(405, say("server.method", method=method))
        hosts = headers.get("host", [])
        if len(hosts) != 1 or not self.address.accepts_host(hosts[0]):
            raise _RefusedError(421, say("server.wrong_host"))
        for origin in headers.get("origin", []):
            if origin.lower() != f"http://{hosts[0].lower()}":
                raise _RefusedError(403, say("server.other_site"))
        site = headers.get("sec-fetch-site", ["none"])[0]
        visits = method == "GET" and headers.get("sec-fetch-mode") == ["navigate"]
        if site not in ("none", "same-origin") and not (visits and not scope["path"].startswith(self.own)):
            raise _RefusedError(403, say("server.other_site"))
        if method == "POST":
            kinds = headers.get("content-type", [])
            if len(kinds) != 1 or kinds[0].split(";")[0].strip().lower() != "application/json":
                raise _RefusedError(415, say("server.send_json"))

    def _has_cookie(self, headers: dict[str, list[str]]) -> bool:
        for line in headers.get("cookie", []):
            try:
                cookie = SimpleCookie(line).get(self.address.cookie)
            except CookieError:
                continue
            if cookie is not None and self._is_token(cookie.value):
                return True
        return False

    def _is_token(self, value: str) -> bool:
        return hmac.compare_digest(value.encode(errors="replace"), (self.address.token or "").encode())

    async def _ask_for_token(self, scope: Scope, send: Send) -> None:
        """A visit with the right token gets the cookie and goes on without it in the address; others are told."""
        query = parse_qsl(scope.get("query_string", b"").decode("latin-1"), keep_blank_values=True)
        tokens = [value for name, value in query if name == "token"]
        if scope["method"] == "GET" and len(tokens) == 1 and self._is_token(tokens[0]):
            rest = urlencode([(name, value) for name, value in query if name != "token"])
            path = "/" + scope["path"].lstrip("/\\")  # `//elsewhere` would lead to another site
            raw = path.encode("ascii", errors="ignore").decode() + (f"?{rest}" if rest else "")
            cookie = f"{self.address.cookie}={self.address.token}; HttpOnly; SameSite=Strict; Path=/"
            await _answer(send, 303, None, {"location": raw, "set-cookie": cookie, "cache-control": "no-store"})
            return
        await _answer(send, 401, error_body(say("server.token")))

    async def _read(self, scope: Scope, headers: dict[str, list[str]], receive: Receive) -> Receive:
        """The body, read up to its limit; the app gets it as one message, and afterwards whatever comes."""
        if scope["method"] != "POST":
            return receive
        too_long = _RefusedError(413, say("server.body_too_long", most=self.max_body))
        length = headers.get("content-length", ["0"])[0]
        if not length.isascii() or not length.isdigit() or int(length[:20]) > self.max_body:
            raise too_long
        parts, size, more = [], 0, True
        try:
            async with asyncio.timeout(BODY_SECONDS):
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise _RefusedError(400, say("server.body_cut"))
                    parts.append(message.get("body", b""))
                    size += len(parts[-1])
                    more = message.get("more_body", False)
                    if size > self.max_body:
                        raise too_long
        except TimeoutError:
            raise _RefusedError(408, say("server.body_slow")) from None
        waiting = [{"type": "http.request", "body": b"".join(parts), "more_body": False}]

        async def replay() -> AsgiMessage:
            return waiting.pop() if waiting else await receive()

        return replay


def _headers(scope: Scope) -> dict[str, list[str]]:
    headers: dict[str, list[str]] = {}
    for name, value in scope["headers"]:
        headers.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
    return headers


async def _answer(send: Send, status: int, content: Any, headers: dict[str, str] | None = None) -> None:
    body = b"" if content is None else json.dumps(content).encode()
    fields = {"content-type": "application/json", "content-length": str(len(body)), **(headers or {})}
    if status >= 400:
        fields["connection"] = "close"  # what is left of a refused request is not read
    pairs = [(name.encode(), value.encode("latin-1")) for name, value in fields.items()]
    await send({"type": "http.response.start", "status": status, "headers": pairs})
    await send({"type": "http.response.body", "body": body})
