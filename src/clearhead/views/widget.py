"""A finding as a notebook widget: the same modules as the page, with what is chosen readable from Python."""

from __future__ import annotations

import json
from typing import Any

from clearhead.errors import ClearheadError
from clearhead.explain.finding import Finding
from clearhead.views.page import WEB, compact, module_of, modules

# A widget is one module: the others are given addresses of their own when it starts.
_MODULE = r"""
const SOURCES = %s;
const made = new Map();
function address(name) {
  if (!made.has(name)) {
    const source = SOURCES[name].replace(/((?:from|import)\s+)"\.\/([\w.]+\.js)"/g,
      (_, before, other) => `${before}"${address(other)}"`);
    made.set(name, URL.createObjectURL(new Blob([source], { type: "text/javascript" })));
  }
  return made.get(name);
}
async function render({ model, el }) {
  const [{ draw }, { unpack }] = await Promise.all([import(address("%s")), import(address("numbers.js"))]);
  const figure = draw(el, unpack(model.get("finding")), {
    lang: model.get("lang"), state: model.get("state"),
    onState: (state) => { model.set("state", state); model.save_changes(); },
  });
  model.on("change:state", () => {
    const state = model.get("state");
    if (JSON.stringify(state) !== JSON.stringify(figure.state())) figure.update({ state });
  });
  model.on("change:lang", () => figure.update({ lang: model.get("lang") }));
  return () => figure.destroy();
}
export default { render };
"""


def module(kind: str) -> str:
    """The JavaScript of the widget for one kind of finding."""
    view = module_of(kind)
    return _MODULE % (json.dumps(modules(view) | modules("numbers.js"), ensure_ascii=False), view)


def widget(finding: Finding, lang: str = "en") -> Any:
    """The figure with `.state` (what is pinned) and `.lang`, both ways between Python and the notebook."""
    try:
        import anywidget
        import traitlets
    except ImportError:
        raise ClearheadError('Widgets need anywidget: pip install "clearhead[notebook]"') from None

    kind = finding.kind

    class FindingWidget(anywidget.AnyWidget):
        _esm = module(kind)
        _css = (WEB / "style.css").read_text(encoding="utf-8")
        finding = traitlets.Dict().tag(sync=True)
        state = traitlets.Dict().tag(sync=True)
        lang = traitlets.Unicode("en").tag(sync=True)

    return FindingWidget(finding=compact(finding), state={}, lang=lang)
