"""A finding as one HTML file that works without a network: its numbers, its view and the style, all inside."""

from __future__ import annotations

import base64
import html
import io
import json
import re
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from clearhead.errors import InputError
from clearhead.explain.finding import Finding, plain
from clearhead.messages import chinese_of
from clearhead.views.terminal import DRAWERS, drawn

WEB = Path(__file__).with_name("web")
WIDTH = 110  # of a table on a page, in characters
_PACKED = 512  # arrays of more numbers travel as bytes
_IMPORT = re.compile(r'(\bfrom\s+|\bimport\s+)"\./([\w.]+\.js)"')
# `<` would let a text end the script it stands in; the others are line ends to old JavaScript.
_ESCAPES = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}


def page(finding: Finding) -> str:
    """The whole page. `?lang=zh` and `?theme=dark` choose; what is pinned stands behind `#`."""
    return (
        _document(finding, inset=False)
        if has_figure(finding.kind)
        else _printed(finding).export_html(inline_styles=True)
    )


def fragment(finding: Finding, height: int = 560) -> str:
    """The figure for a notebook: a frame that holds everything and takes the height it needs."""
    if not has_figure(finding.kind):
        return _printed(finding).export_html(inline_styles=True, code_format="<pre>{code}</pre>")
    inside = html.escape(_document(finding, inset=True), quote=True)
    title = html.escape(f"Clearhead: {finding.kind}", quote=True)
    return (
        f'<iframe title="{title}" srcdoc="{inside}" loading="lazy" '
        f'style="width:100%;height:{height}px;border:0" allow="clipboard-write"></iframe>'
    )


def compact(finding: Finding) -> dict[str, Any]:
    """`to_dict()` with its large arrays as the bytes of float32; web/numbers.js unpacks them.

    `$zh` holds the Chinese of the words that the finding itself has, in the same places.
    """
    packed = {"kind": finding.kind, **_packed(finding)}
    chinese = chinese_of(packed)
    return packed | ({"$zh": chinese} if chinese else {})


def _packed(value: Any) -> Any:
    if is_dataclass(value):
        return {field.name: _packed(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, list) and value and is_dataclass(value[0]):
        return [_packed(item) for item in value]
    numbers: np.ndarray | None
    if isinstance(value, np.ndarray) and value.dtype.kind == "f":
        numbers = value
    else:
        value = plain(value)
        numbers = _as_numbers(value) if isinstance(value, list) and value else None
    if numbers is None or numbers.size <= _PACKED:
        return plain(value)
    finite = np.where(np.isfinite(numbers), numbers, np.nan).astype("<f4")
    return {"$float32": base64.b64encode(finite.tobytes()).decode("ascii"), "shape": list(finite.shape)}


def _as_numbers(value: list[Any]) -> np.ndarray | None:
    """A nested list of numbers and None as an array; None if it is something else."""
    first: Any = value
    while isinstance(first, list) and first:
        first = first[0]
    if first is not None and not isinstance(first, float):
        return None
    try:
        array = np.array(value, dtype=np.float64)  # None becomes nan
    except (TypeError, ValueError):
        return None
    return array


@cache
def _source(name: str) -> str:
    return (WEB / name).read_text(encoding="utf-8")


@cache
def modules(first: str) -> dict[str, str]:
    """The sources a module needs, itself included, by file name."""
    sources: dict[str, str] = {}
    waiting = [first]
    while waiting:
        name = waiting.pop()
        if name not in sources:
            sources[name] = _source(name)
            waiting += [match[2] for match in _IMPORT.finditer(sources[name])]
    return sources


def has_figure(kind: str) -> bool:
    """Whether a module of the page draws it. What has only a drawing for the terminal is shown as that."""
    return (WEB / f"{kind.replace('-', '_')}.js").is_file() or kind not in DRAWERS


def _printed(finding: Finding) -> Console:
    """A console that has recorded what the terminal shows, and has shown it to nobody."""
    console = Console(file=io.StringIO(), width=WIDTH, record=True, highlight=False)
    console.print(drawn(finding))
    return console


def module_of(kind: str) -> str:
    """The file that draws this kind of finding."""
    name = f"{kind.replace('-', '_')}.js"
    if not (WEB / name).is_file():
        raise InputError(f"There is no picture for findings of kind {kind!r}. Save it as .json or .csv.")
    return name


def script_json(value: Any) -> str:
    """JSON that can stand inside a <script>."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return "".join(_ESCAPES.get(sign, sign) for sign in text) if _ESCAPES.keys() & set(text) else text


def _document(finding: Finding, inset: bool) -> str:
    view = module_of(finding.kind)
    sources = modules(view) | modules("standalone.js")
    # Each module becomes an address that holds its own source; the import map gives it a name.
    addresses = {f"clearhead/{name}": _address(source) for name, source in sources.items()}
    name = html.escape(str(getattr(finding, "model", "") or finding.kind))
    return f"""<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="generator" content="Clearhead">
<title>{name} · {html.escape(finding.kind)}</title>
<style>
{_source("style.css")}html, body {{ margin: 0; }}
</style>
<script type="importmap">{script_json({"imports": addresses})}</script>
<body class="ch-page{" ch-inset" if inset else ""}">
<noscript>This figure is drawn by JavaScript, which is switched off here.</noscript>
<script type="application/json" id="finding">{script_json(compact(finding))}</script>
<script type="module">
import {{ draw }} from "clearhead/{view}";
import {{ show }} from "clearhead/standalone.js";
show(draw);
</script>
</body>
</html>
"""


def _address(source: str) -> str:
    named = _IMPORT.sub(r'\1"clearhead/\2"', source)
    return "data:text/javascript;base64," + base64.b64encode(named.encode()).decode("ascii")
