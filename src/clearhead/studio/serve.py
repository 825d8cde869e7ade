"""Starting and ending the server: which address and port it gets, what it says, and that it ends at once."""

from __future__ import annotations

import errno
import os
import secrets
import socket
import sys
import threading
import webbrowser
from collections.abc import Callable
from types import FrameType

import uvicorn

from clearhead.errors import InputError
from clearhead.server.guard import is_loopback
from clearhead.studio.app import Studio

PORT = 8421
TRIES = 20  # ports after the usual one, where nobody asked for a certain one


def listen(host: str, port: int | None) -> socket.socket:
    """A socket on this port; without one, on the usual port or the next free one after it."""
    for tried in [port] if port is not None else [*range(PORT, PORT + TRIES), 0]:
        try:
            found = socket.getaddrinfo(host, tried, type=socket.SOCK_STREAM)[0]
            return socket.create_server(found[4][:2], family=found[0])
        except socket.gaierror:
            raise InputError(f"{host} is not an address of this machine.") from None
        except OSError as error:
            if error.errno == errno.EADDRINUSE and port is None:
                continue
            if error.errno == errno.EADDRINUSE:
                raise InputError(
                    f"Port {port} is taken by another program. Choose another, or leave --port out."
                ) from None
            raise InputError(f"The studio cannot listen at {host}, port {tried}: {error.strerror or error}.") from None
    raise InputError(f"No port is free at {host}.")


def token_for(host: str) -> str | None:
    """What must be known to get in: nothing on this machine alone, a long random word elsewhere."""
    return None if is_loopback(host) else secrets.token_urlsafe(24)


def has_display() -> bool:
    """Whether a browser could be seen."""
    if sys.platform in ("win32", "darwin"):
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, studio: Studio, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._studio, self._ready = studio, ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._studio.desk.cancel_all()  # so that no answer under way keeps the server open
        super().handle_exit(sig, frame)


def serve(studio: Studio, listener: socket.socket, ready: Callable[[], None], browser: bool = False) -> None:
    """Until somebody ends it. The first model is loaded in the background once the server answers.

    ready   called when it answers
    """

    def begin() -> None:
        ready()
        threading.Thread(target=studio.warm, daemon=True).start()
        if browser:
            threading.Thread(target=webbrowser.open, args=(studio.place.url,), daemon=True).start()

    config = uvicorn.Config(
        studio.app, log_level="warning", access_log=False, server_header=False, lifespan="off", timeout_keep_alive=30,
        timeout_graceful_shutdown=1, ws="none",
    )  # fmt: skip
    server = _Server(config, studio, begin)
    try:
        server.run([listener])
    except KeyboardInterrupt:  # uvicorn hands it on after it has closed everything
        pass
    finally:
        listener.close()
