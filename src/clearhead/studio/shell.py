"""The page before its script has run: the same few lines of HTML for every address, and the files that it may load."""

from __future__ import annotations

import hashlib
from pathlib import Path

from clearhead.views.page import WEB as VIEWS

STUDIO = Path(__file__).with_name("web")
FOLDERS = {"views": VIEWS, "studio": STUDIO, "studio/chapters": STUDIO / "chapters"}
KINDS = {
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".json": "application/json",
    ".woff2": "font/woff2",
}

SHELL = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Clearhead</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="/static/views/style.css">
<link rel="stylesheet" href="/static/studio/style.css">
<script type="module" src="/static/studio/app.js"></script>
</head>
<body>
<noscript>
<p>The studio is drawn by JavaScript, which is switched off here. Switch it on for this address, or use the terminal:
<code>clearhead --help</code>.</p>
<p lang="zh-Hans">工作室由 JavaScript 绘制，而这里关闭了它。请为此地址打开
JavaScript，或改用终端：<code>clearhead --help</code>。</p>
</noscript>
</body>
</html>
"""


def static(path: str) -> tuple[bytes, str, str] | None:
    """(content, media type, etag) of a file; None unless it is one of those that lie in the packaged folders.

    The path is looked up among their names and never opened as it is.
    """
    parent, _, name = path.rpartition("/")
    folder = FOLDERS.get(parent)
    if folder is None or not folder.is_dir():
        return None
    files = {file.name: file for file in folder.iterdir() if file.suffix in KINDS and file.is_file()}
    if name not in files:
        return None
    content = files[name].read_bytes()
    return content, KINDS[files[name].suffix], f'"{hashlib.sha256(content).hexdigest()[:32]}"'
