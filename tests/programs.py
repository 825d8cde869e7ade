"""Programs that tests of the pages need. Without one a test is skipped; in CI it fails, so that none goes unnoticed."""

import os
import shutil

import pytest

from clearhead.studio.screenshots import CHROMIUM

IN_CI = os.environ.get("CI", "").lower() in ("1", "true", "yes")


def need(found, name):
    if not found:
        (pytest.fail if IN_CI else pytest.skip)(f"needs {name}, which is not installed here")


def need_chromium():
    need(CHROMIUM, "Chromium")


def need_node():
    need(shutil.which("node"), "Node.js")


def need_playwright():
    """The module that steers a browser."""
    try:
        from playwright import sync_api
    except ImportError:
        need(None, "playwright")
    need_chromium()
    return sync_api
