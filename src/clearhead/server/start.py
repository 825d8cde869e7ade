"""Starting and ending a server: which address and port it gets, and that it ends at once."""

from __future__ import annotations

import errno
import secrets
import socket
from collections.abc import Callable
from types import FrameType

import uvicorn

from clearhead.errors import InputError
from clearhead.messages import say
from clearhead.server.guard import App, is_loopback
from clearhead.server.jobs import JobQueue

PORT = 8421
TRIES = 20  # ports after the usual one, where nobody asked for a certain one


def listen(host: str, port: int | None) -> socket.socket:
    """A socket on this port; without one, on the usual port or the next free one after it."""
    for tried in [port] if port is not None else [*range(PORT, PORT + TRIES), 0]:
        try:
            family, *_, address = socket.getaddrinfo(host, tried, type=socket.SOCK_STREAM)[0]
            return socket.create_server(address[:2], family=family)
        except socket.gaierror:
            raise InputError(say("server.not_our_address", host=host)) from None
        except OSError as error:
            if error.errno == errno.EADDRINUSE and port is None:
                continue
            if error.errno == errno.EADDRINUSE:
                raise InputError(say("server.port_taken", port=port)) from None
            reason = error.strerror or str(error)
            raise InputError(say("server.cannot_listen", host=host, port=tried, reason=reason)) from None
    raise InputError(say("server.no_free_port", host=host))


def token_for(host: str) -> str | None:
    """What must be known to get in: nothing on this machine alone, a long random word elsewhere."""
    return None if is_loopback(host) else secrets.token_urlsafe(24)


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, jobs: JobQueue, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._jobs, self._ready = jobs, ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._jobs.cancel_all()  # so that no answer under way keeps the server open
        super().handle_exit(sig, frame)


def serve(app: App, jobs: JobQueue, listener: socket.socket, ready: Callable[[], None]) -> None:
    """Until somebody ends it; the jobs under way are cancelled then.

    ready   called when the server answers
    """
    config = uvicorn.Config(
        app, log_level="warning", access_log=False, server_header=False, lifespan="off", timeout_keep_alive=30,
        timeout_graceful_shutdown=1, ws="none",
    )  # fmt: skip
    server = _Server(config, jobs, ready)
    try:
        server.run([listener])
    except KeyboardInterrupt:  # uvicorn hands it on after it has closed everything
        pass
    finally:
        listener.close()
