"""A hub on the loopback: serves a folder's files the way the real one does, as far as a download needs."""

from __future__ import annotations

import hashlib
import http.server
import re
import threading
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def serve(repos: dict[str, Path], revisions: tuple[str, ...] = ("main",), private: tuple[str, ...] = ()):
    """Yields (url, log of requests). Every revision is the same commit."""
    commit = "0123456789abcdef0123456789abcdef01234567"
    seen: list[tuple[str, str, str | None]] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *args):
            pass

        def _refuse(self, status: int, code: str) -> None:
            self.send_response(status)
            self.send_header("X-Error-Code", code)
            self.send_header("X-Error-Message", code)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def _serve(self, body: bool) -> None:
            seen.append((self.command, self.path, self.headers.get("authorization")))
            match = re.fullmatch(r"/(.+?)/resolve/([^/]+)/(.+)", self.path)
            if not match or match[1] not in repos:
                return self._refuse(404, "RepoNotFound")
            if match[1] in private and self.headers.get("authorization") != "Bearer hf_secret":
                return self._refuse(401, "RepoNotFound")
            if match[2] not in (*revisions, commit):
                return self._refuse(404, "RevisionNotFound")
            path = repos[match[1]] / match[3]
            if not path.is_file():
                return self._refuse(404, "EntryNotFound")
            data = path.read_bytes()
            self.send_response(200)
            self.send_header("X-Repo-Commit", commit)
            self.send_header("ETag", f'"{hashlib.sha1(data).hexdigest()}"')
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            if body:
                self.wfile.write(data)
            return None

        def do_HEAD(self):
            self._serve(body=False)

        def do_GET(self):
            self._serve(body=True)

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", seen
    finally:
        server.shutdown()
        server.server_close()
