"""A studio with small models and a browser that looks at it, shared by the tests of its pages."""

import threading
import time
from contextlib import contextmanager

import pytest
import uvicorn

from clearhead.server.guard import ServerAddress
from clearhead.server.start import listen
from clearhead.studio.app import Studio
from clearhead.studio.runs import Runs
from clearhead.studio.screenshots import CHROMIUM
from tests.programs import need_playwright
from tests.tiny import tiny_pipeline

# Every visible text with its contrast against what lies behind it, as WCAG counts; those below what AA asks for.
# Signs for spaces (␣) are decoration: the word itself says as much. What is switched off is exempt, as in WCAG.
CONTRAST = r"""
() => {
  const canvas = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  const known = new Map(); // a page has few colours, and reading a canvas is slow
  const rgba = (colour) => { if (known.has(colour)) return [...known.get(colour)];
    canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data; known.set(colour, [r, g, b, a / 255]); return rgba(colour); };
  const over = (top, below) => [0, 1, 2].map((n) => top[n] * top[3] + below[n] * (1 - top[3])).concat(1);
  const light = ([r, g, b]) => { const [x, y, z] = [r, g, b].map((v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * x + 0.7152 * y + 0.0722 * z; };
  const seen_behind = new Map(); // element → what lies behind its text, and how opaque it is
  const behind = (one) => {
    if (!one) return [rgba(getComputedStyle(document.body).backgroundColor), 1];
    if (!seen_behind.has(one)) { const style = getComputedStyle(one), [ground, opacity] = behind(one.parentElement);
      seen_behind.set(one, [over(rgba(style.backgroundColor), ground), opacity * Number(style.opacity)]); }
    return seen_behind.get(one);
  };
  const poor = [];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node; (node = walk.nextNode());) {
    const own = node.parentElement;
    if (!node.textContent.trim() || !own.checkVisibility({ opacityProperty: false, visibilityProperty: true })) continue;
    if (own.closest(".ch-sign, [aria-disabled], :disabled, option, .ch-live, script, style, noscript, [hidden]")) continue;
    const [ground, opacity] = behind(own);
    const style = getComputedStyle(own), drawn = own instanceof SVGElement;
    const ink = rgba(drawn ? style.fill : style.color);
    ink[3] *= opacity * (drawn ? Number(style.fillOpacity) : 1);
    const seen = over(ink, ground), [a, b] = [light(seen), light(ground)].sort((x, y) => y - x);
    const size = parseFloat(style.fontSize), large = size >= 24 || (size >= 18.6 && Number(style.fontWeight) >= 700);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < (large ? 3 : 4.5)) poor.push(`${ratio.toFixed(2)} “${node.textContent.trim().slice(0, 40)}” .${own.getAttribute("class") ?? own.localName}`);
  }
  return [...new Set(poor)];
}
"""  # noqa: E501


@pytest.fixture(scope="module")
def browser():
    with need_playwright().sync_playwright() as player:
        opened = player.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def studio(tmp_path_factory):
    """Its address. Models: random-gpt2 and the other shipped ones, and two small random ones: words (masked), both."""
    folder = tmp_path_factory.mktemp("studio")
    for name, pipe in {"words": tiny_pipeline("bert"), "both": tiny_pipeline("bart")}.items():
        pipe.save(folder / name)
    (folder / "runs").mkdir()
    listener = listen("127.0.0.1", 0)
    port = listener.getsockname()[1]
    made = Studio(
        [str(folder / "words"), str(folder / "both")],
        runs=Runs(folder / "runs"),
        address=ServerAddress("127.0.0.1", port),
    )
    made.runs_folder = folder / "runs"
    made.address = f"http://127.0.0.1:{port}"
    server = uvicorn.Server(uvicorn.Config(made.app, log_level="error", lifespan="off", timeout_graceful_shutdown=1))
    thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.02)
    yield made
    made.jobs.cancel_all()
    server.should_exit = True
    thread.join(timeout=10)
    listener.close()


@contextmanager
def visit(browser, studio, path, width=1280, height=900, allow=(), **context):
    """A page of the studio; whatever it complains about on the console fails the test, but for what is allowed."""
    room = browser.new_context(
        viewport={"width": width, "height": height}, reduced_motion="reduce", locale="en-GB", **context
    )
    page = room.new_page()
    said = []
    page.on("console", lambda message: said.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: said.append(str(error)))
    page.set_default_timeout(15_000)
    page.goto(studio.address + path)
    try:
        yield page
        assert [words for words in said if not any(part in words for part in allow)] == []
    finally:
        room.close()


def settled(page, count=1):
    """Waits until so many figures stand and nothing is being asked."""
    page.wait_for_function(
        """(count) => document.querySelectorAll(".st-live figcaption").length >= count
           && !document.querySelector("[aria-busy], .st-thinking")""",
        arg=count,
    )
