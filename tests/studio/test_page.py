"""The studio in a real browser: the lab, the runs and the first page, by mouse, by keyboard and by address."""

import json
import subprocess
import sys
from urllib.parse import parse_qs, quote, urlsplit

import pytest

from clearhead.explain.questions import QUESTIONS
from tests.studio.browser import CHROMIUM, CONTRAST, browser, settled, studio, visit  # noqa: F401 (fixtures)

MODELS = ["random-gpt2", "words", "both"]
TEXT = "the cat sat on the mat"
FITS = "async (name) => (await (await fetch(`/api/models/${name}`)).json()).questions"
CHINESE = FITS.replace(".questions", ".zh?.questions ?? {}")
# Presses the buttons of the bar, forty times in a test: other tests do it with the mouse.
DRESS = """([language, theme]) => {
  [...document.querySelectorAll(".st-nav button")].find((one) => one.textContent === language).click();
  if (document.documentElement.dataset.theme !== theme) document.querySelector('.st-nav [data-at="theme"]').click();
}"""
# Where the keyboard stands, and whether one sees it there.
STOPPED = """() => {
  const at = document.activeElement, style = getComputedStyle(at), hit = at.querySelector(".ch-hit");
  const framed = parseFloat(style.outlineWidth) > 0 && style.outlineStyle !== "none";
  return { name: at.dataset.question ?? at.id ?? "", mark: at.matches(".ch-row"),
    seen: framed || (hit && getComputedStyle(hit).stroke !== "none") };
}"""
# Begins to write, and cancels as soon as there is a first word: a small model would be done before the mouse is there.
STOP = """(length) => {
  const written = document.querySelector(".st-written");
  new MutationObserver((_, watch) => { if (written.textContent.length > length) { watch.disconnect(); document.querySelector(".st-writer .ch-link").click(); } }).observe(written, { childList: true });
  document.querySelector(".st-writer .st-button").click();
}"""  # noqa: E501


def lab(question="attention", model="random-gpt2", text=TEXT, more=""):
    return f"/lab?model={model}&question={question}&text={quote(text)}{more}"


def query(page):
    return {name: values[0] for name, values in parse_qs(urlsplit(page.url).query, keep_blank_values=True).items()}


@pytest.mark.parametrize("model", MODELS)
def test_every_question_gets_a_figure_or_a_reason(model, browser, studio):  # noqa: F811
    """In both languages and both themes, with no word too faint, and within a small window."""
    text = "the cat sat on the [MASK]" if model == "words" else TEXT
    with visit(browser, studio, lab("parameters", model, text)) as page:
        settled(page)
        reasons, chinese = page.evaluate(FITS, model), page.evaluate(CHINESE, model)
        assert set(reasons) == set(QUESTIONS)
        before = [page.evaluate(FITS, other) for other in MODELS[: MODELS.index(model)]]  # their looks were looked at
        for name, reason in reasons.items():
            entry = page.locator(f'[data-question="{name}"]')
            if reason is not None:
                assert entry.get_attribute("aria-disabled") == "true"
                words = entry.inner_text()  # in the language that was chosen last
                assert reason in words or chinese[name] in words
                continue
            entry.click()
            if QUESTIONS[name].second == "needed":
                page.locator("#second").fill(text.replace("cat sat", "sat cat"))
            page.locator(f'figure[data-kind="{QUESTIONS[name].kind}"]').wait_for()
            settled(page)
            if any(fits[name] is None for fits in before):
                continue
            says = []
            for language, theme in (("English", "light"), ("中文", "dark")):
                page.evaluate(DRESS, [language, theme])
                says.append((page.locator(".ch-question").inner_text(), page.locator(".st-title").inner_text()))
                assert page.evaluate(CONTRAST) == [], f"{name}, {theme}"
            assert says[0][0] != says[1][0], name
            assert says[0][1] != says[1][1], name
            page.set_viewport_size({"width": 360, "height": 800})
            page.wait_for_timeout(60)  # a frame, in which figures fit themselves to the width
            assert page.evaluate("document.documentElement.scrollWidth") == 360, name
            page.set_viewport_size({"width": 1280, "height": 900})


def test_the_chosen_question_is_in_sight(browser, studio):  # noqa: F811
    """The list is longer than a low window; the page itself stays at its top."""
    with visit(browser, studio, lab("parameters", MODELS[0], TEXT), height=500) as page:
        settled(page)
        inside = page.evaluate("""() => {
          const one = document.querySelector("aside [aria-current]").getBoundingClientRect();
          const room = document.querySelector("aside").getBoundingClientRect();
          return [one.top >= room.top, one.bottom <= room.bottom, scrollY];
        }""")
        assert inside == [True, True, 0]


def test_a_question_that_does_not_fit_says_why(browser, studio):  # noqa: F811
    with visit(browser, studio, "/lab") as page:
        reasons = page.evaluate(FITS, "random-gpt2")
        name, reason = next((name, reason) for name, reason in reasons.items() if reason is not None)
        page.goto(studio.address + lab(name))
        page.get_by_role("alert").wait_for()
        assert page.get_by_role("alert").inner_text() == reason
        chinese = page.evaluate(CHINESE, "random-gpt2")[name]
        page.get_by_role("button", name="中文").click()
        page.wait_for_function("(words) => document.querySelector('[role=alert]')?.innerText === words", arg=chinese)


def test_a_figure_answers_the_pointer_and_the_address_remembers_it(browser, studio):  # noqa: F811
    with visit(browser, studio, lab()) as page:
        settled(page)
        token = page.locator(".ch-row").nth(3)
        token.hover()
        assert page.locator(".ch-row.ch-lit").count() > 0
        page.get_by_role("button", name="all heads").click()
        assert json.loads(query(page)["@view"]) == "all"
        here = page.url
        page.locator('[data-question="next-token"]').click()
        settled(page)
        assert query(page)["question"] == "next-token"
        assert "@view" not in query(page)
        page.go_back()
        settled(page)
        assert page.get_by_role("button", name="all heads").get_attribute("aria-pressed") == "true"
        page.go_forward()
        settled(page)
        assert page.locator(".ch-ranked").count() == 1
        page.goto(here)  # a copied link
        settled(page)
        assert page.get_by_role("button", name="all heads").get_attribute("aria-pressed") == "true"
        assert page.locator("#text").input_value() == TEXT


def test_what_is_typed_is_answered_and_one_step_back(browser, studio):  # noqa: F811
    with visit(browser, studio, lab("next-token")) as page:
        settled(page)
        page.locator("#text").fill("a dog")
        page.wait_for_function("() => document.querySelector('.ch-say')?.textContent.startsWith('a dog')")
        assert query(page)["text"] == "a dog"
        page.locator('input[name="k"]').fill("3")
        page.keyboard.press("Enter")
        page.wait_for_function("() => document.querySelectorAll('.ch-ranked > button').length === 3")
        assert query(page)[".k"] == "3"
        page.go_back()
        page.wait_for_function("() => document.querySelectorAll('.ch-ranked > button').length === 10")
        page.go_back()
        page.wait_for_function(f"() => document.querySelector('.ch-say')?.textContent.startsWith('{TEXT}')")
        assert page.locator("#text").input_value() == TEXT


def test_a_next_token_that_is_clicked_is_written(browser, studio):  # noqa: F811
    with visit(browser, studio, lab("next-token")) as page:
        settled(page)
        first = page.locator(".ch-ranked > button").first
        label = first.get_attribute("aria-label")
        first.click()
        page.wait_for_function(f"() => document.querySelector('#text').value.length > {len(TEXT)}")
        settled(page)
        added = page.locator("#text").input_value()[len(TEXT) :]
        assert label.startswith(added.replace(" ", "␣").replace("\n", "⏎"))
        page.goto(studio.address + lab("next-token", "both"))
        settled(page)
        page.locator(".ch-ranked > button").nth(1).click()
        page.wait_for_function("() => new URLSearchParams(location.search).has('.target')")


def test_a_head_that_is_clicked_is_taken_away(browser, studio):  # noqa: F811
    with visit(browser, studio, lab()) as page:
        settled(page)
        page.get_by_label("Take this head away").check()
        page.locator(".st-change tbody tr").first.wait_for()
        said = page.locator(".st-without .st-line").inner_text()
        assert "head" in said
        heads = page.locator(".ch-heads button")
        other = next(n for n in range(heads.count()) if heads.nth(n).get_attribute("aria-pressed") == "false")
        heads.nth(other).click()
        page.wait_for_function(
            f"() => document.querySelector('.st-without .st-line')?.textContent.includes('head {other},')"
        )
        before = page.locator(".st-change tbody td:nth-child(2)").all_inner_texts()
        after = page.locator(".st-change tbody td:nth-child(3)").all_inner_texts()
        assert before != after
        assert query(page)["without"] == "1"


def test_the_first_two_texts_fit_each_shipped_model(browser, studio):  # noqa: F811
    """They are as long as each other in its tokens, and it answers them differently: patching can be shown at once."""
    with visit(browser, studio, "/lab") as page:
        for name in ("stories", "bert-mini", "sentiment", "intents", "translate-en-de", "translate-en-fr"):
            page.goto(f"{studio.address}/lab?model={name}&question=patching")
            settled(page)
            assert page.locator(".st-error").count() == 0
            first, second = page.locator(".st-live").inner_text().split("→ ")[1:3]
            assert first.split()[0] != second.split()[0]


@pytest.mark.parametrize(("vs", "other"), [("text", "a dog ran"), ("model", "both")])
def test_two_side_by_side(vs, other, browser, studio):  # noqa: F811
    with visit(browser, studio, lab(more=f"&vs={vs}&other={quote(other)}")) as page:
        settled(page, count=2)
        names = page.locator(".st-column-name").all_inner_texts()
        assert names == ([TEXT, "a dog ran"] if vs == "text" else ["random-gpt2", "both"])
        if vs == "text":  # the same head of the same model
            first, second = page.locator(".st-column .st-actions").all_inner_texts()
            assert first == second
        boxes = [page.locator(".st-column").nth(n).bounding_box() for n in (0, 1)]
        assert boxes[0]["y"] == boxes[1]["y"]
        assert boxes[0]["x"] + boxes[0]["width"] <= boxes[1]["x"]
        page.locator(".st-column").first.get_by_role("button", name="matrix").click()  # chosen for both
        assert page.locator('[data-at="group-matrix"][aria-pressed="true"]').count() == 2
        page.locator("#against").select_option("")
        page.wait_for_function("() => document.querySelectorAll('.st-column').length === 1")


def test_two_side_by_side_share_their_scale(browser, studio):  # noqa: F811
    """Bars are against the likeliest of both."""
    with visit(browser, studio, lab("next-token", "both", more="&vs=model&other=random-gpt2")) as page:
        settled(page, count=2)
        shares = page.locator(".ch-ranked .ch-share").all_inner_texts()
        widths = page.locator(".ch-ranked .ch-bar").evaluate_all(
            "(all) => all.map((one) => parseFloat(one.style.width))"
        )
        most = max(float(share.removesuffix(" %")) for share in shares)
        for share, width in zip(shares, widths, strict=True):
            assert width == pytest.approx(float(share.removesuffix(" %")) / most * 100, abs=2)


def test_text_streams_in_and_can_be_cancelled(browser, studio):  # noqa: F811
    with visit(browser, studio, lab("write", more="&.max_new_tokens=500")) as page:
        page.get_by_role("button", name="Write", exact=True).wait_for()
        page.evaluate(STOP, len(TEXT))
        page.get_by_text("Cancelled.").wait_for()
        so_far = page.locator(".st-written").inner_text()
        page.wait_for_timeout(200)
        assert page.locator(".st-written").inner_text() == so_far
        page.locator('input[name="max_new_tokens"]').fill("4")
        page.keyboard.press("Enter")
        page.get_by_role("button", name="Write", exact=True).click()
        page.get_by_text("tokens in").wait_for()


def test_a_slow_question_can_be_cancelled_and_asked_again(browser, studio):  # noqa: F811
    with visit(browser, studio, lab()) as page:
        settled(page)
        page.route("**/api/ask", lambda route: None)  # never answered
        page.locator('[data-question="hidden-states"]').click()
        page.get_by_role("button", name="Cancel").click()
        page.get_by_text("Cancelled.").wait_for()
        page.unroute("**/api/ask")
        page.get_by_role("button", name="Ask again").click()
        page.locator('figure[data-kind="hidden-states"]').wait_for()


def test_errors_are_words_on_the_page(browser, studio):  # noqa: F811
    with visit(browser, studio, lab("query-key", more="&.layer=99")) as page:
        page.locator(".st-error").wait_for()
        assert "99" in page.locator(".st-error").inner_text()
        page.locator('input[name="layer"]').fill("1")
        page.keyboard.press("Enter")
        settled(page)
        assert page.locator(".st-error").count() == 0
    with visit(browser, studio, lab(model="nobody"), allow=("404",)) as page:
        page.locator(".st-error").wait_for()
        assert "nobody" in page.locator(".st-error").inner_text()
    for path in ("/nowhere", "/chapters/nowhere"):
        with visit(browser, studio, path, allow=("404",)) as page:
            assert "no such page" in page.get_by_role("alert").inner_text()
    with visit(browser, studio, "/runs", allow=("ERR_CONNECTION_REFUSED",)) as page:
        page.route("**/api/**", lambda route: route.abort("connectionrefused"))
        page.goto(studio.address + "/lab")
        page.get_by_role("alert").wait_for()
        assert "clearhead studio" in page.get_by_role("alert").inner_text()


def test_the_lab_by_keyboard_alone(browser, studio):  # noqa: F811
    """From the top of the page to a pinned mark, and every stop on the way can be seen."""
    with visit(browser, studio, lab()) as page:
        settled(page)
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.className") == "st-skip"
        page.keyboard.press("Enter")
        assert page.evaluate("document.activeElement.id") == "main"
        stops = []
        for _ in range(60):
            page.keyboard.press("Tab")
            stop = page.evaluate(STOPPED)
            stops.append(stop)
            if stop["mark"]:
                break
        assert stops[-1]["mark"]
        assert [stop for stop in stops if not stop["seen"]] == []
        assert {"model", "text", "next-token"} <= {stop["name"] for stop in stops}
        page.keyboard.press("ArrowDown")
        page.keyboard.press("Enter")
        page.wait_for_function("() => new URLSearchParams(location.search).has('@token')")
        page.locator('[data-question="walk"]').focus()
        page.keyboard.press("Enter")
        page.locator('figure[data-kind="walk"]').wait_for()
        assert page.evaluate("document.activeElement.dataset.question") == "walk"


def test_language_and_theme_stay_chosen(browser, studio):  # noqa: F811
    with visit(browser, studio, lab(), color_scheme="dark") as page:
        settled(page)
        ground = "getComputedStyle(document.body).backgroundColor"
        dark = page.evaluate(ground)
        page.get_by_role("button", name="Light page").click()
        assert page.evaluate(ground) != dark
        page.get_by_role("button", name="中文").click()
        assert page.locator("html").get_attribute("lang") == "zh-Hans"
        page.goto(studio.address + "/")
        page.get_by_role("heading", name="章节").wait_for()
        assert page.evaluate(ground) != dark
        page.goto(studio.address + "/?lang=en&theme=dark")
        page.get_by_role("heading", name="Chapters").wait_for()
        assert page.evaluate(ground) == dark


def test_a_figure_is_saved_as_a_page_of_its_own(browser, studio):  # noqa: F811
    with visit(browser, studio, lab("next-token")) as page:
        settled(page)
        page.get_by_role("button", name="Copy or save this figure").click()
        with page.expect_download() as saved:
            page.get_by_role("menuitem", name="Save as a page").click()
        assert "What may come next" not in saved.value.path().read_text()  # the words are in its script, packed
        assert '"kind":"next-tokens"' in saved.value.path().read_text()


def test_a_long_text_is_drawn_and_a_long_address_works(browser, studio):  # noqa: F811
    text = "a cat " * 700
    with visit(browser, studio, lab("next-token")) as page:
        settled(page)
        page.locator("#text").fill(text)
        page.wait_for_function("() => location.hash.length > 3000")
        page.locator(".st-error").wait_for()  # more than the studio takes, said in words
        page.locator("#text").fill("a cat " * 60)
        settled(page)
        page.reload()
        settled(page)
        assert page.locator("#text").input_value() == "a cat " * 60


def test_the_first_page_answers_at_once(browser, studio):  # noqa: F811
    with visit(browser, studio, "/") as page:
        settled(page)
        page.get_by_label("Your sentence").fill("a dog")
        page.wait_for_function("() => /a.?d.?o.?g/.test(document.querySelector('.st-live figure')?.textContent)")
        assert page.locator('.st-contents-list a[href="/lab"]').count() == 1
        assert page.evaluate(CONTRAST) == []


@pytest.mark.parametrize("width", [1440, 1024, 390])
def test_a_figure_stands_in_the_middle_and_names_what_is_written(width, browser, studio):  # noqa: F811
    with visit(browser, studio, "/", width=width) as page:
        page.locator(".st-bar select").select_option("translate-en-de")
        page.get_by_label("Your sentence").fill("A young girl is playing with a brown dog.")
        row = page.locator(".ch-row[aria-label^='␣spielt']")
        row.wait_for()
        settled(page)
        assert row.get_attribute("aria-label") == "␣spielt (after ␣Mädchen)"
        assert row.locator("text").all_text_contents() == ["␣Mädchen" if width > 500 else "␣Mädch…", "␣spielt"]
        row.hover()
        assert "␣playing" in page.locator(".ch-row.ch-lit[data-at^='k']").all_text_contents()
        assert page.locator(".ch-row[data-at^='q']").last.get_attribute("aria-label") == "</s> (after .)"
        boxes = page.evaluate("""() => [".st-live figure", ".ch-columns"].map((name) => {
          const { left, right } = document.querySelector(name).getBoundingClientRect(); return [left, right]; })""")
        most = min(1100, width - 32)
        assert boxes == [pytest.approx([(width - most) / 2, (width + most) / 2], abs=1)] * 2


def test_the_markup_of_prose_is_small_and_safe(browser, studio):  # noqa: F811
    text = "## One\n\n<img src=x> *two* **three** `four` {q:five}\n\n- [in](/lab)\n- [out](javascript:alert(1))"
    with visit(browser, studio, "/runs") as page:
        drawn = page.evaluate(
            """async (text) => { const { prose } = await import("/static/studio/chapter.js");
              const box = document.createElement("div"); box.append(...prose(text)); return box.innerHTML; }""",
            text,
        )
    assert drawn == (
        "<h2>One</h2><p>&lt;img src=x&gt; <em>two</em> <strong>three</strong> <code>four</code> "
        '<b class="st-q">five</b></p><ul><li><a href="/lab">in</a></li><li>[out](javascript:alert(1))</li></ul>'
    )


EVENTS = [
    {"event": "begin", "step": 0, "steps": 100, "objective": "language-model", "family": "GPT-2", "parameters": 5,
     "device": "cpu", "devices": 1, "precision": "fp32", "unit": "note"},
    *({"event": "step", "step": n, "steps": 100, "loss": 9 - n / 20, "lr": 0.001, "grad_norm": 1.0,
       "units_per_second": 1000.0 + n, "eta": 3.0} for n in range(1, 60)),
    {"event": "evaluation", "step": 30, "metrics": {"loss": 7.7, "perplexity": 2208.0}, "best": True},
    {"event": "sample", "step": 30, "text": "Once upon a time <b>cats</b>"},
]  # fmt: skip


def test_runs_are_live_curves(browser, studio):  # noqa: F811
    with visit(browser, studio, "/runs") as page:
        page.clock.install()  # it looks every two seconds, which pass when we say so
        page.reload()
        page.get_by_text("There are no runs in this folder yet").wait_for()
        for name in ("one", "two"):
            folder = studio.runs_folder / name
            folder.mkdir()
            (folder / "recipe.yaml").write_text("objective: language-model\n")
            (folder / "log.jsonl").write_text("".join(json.dumps(event) + "\n" for event in EVENTS))
        page.clock.run_for(2000)
        page.locator(".st-run").nth(1).wait_for()
        page.locator(".st-plot path").first.wait_for()
        titles = page.locator(".st-chart h3").all_inner_texts()
        assert titles == ["Loss", "Learning rate", "Notes a second", "Length of the gradient", "Held-out perplexity"]
        assert page.locator(".st-chart").first.locator("rect").count() == 1  # the held-out mark
        assert "<b>cats</b>" in page.locator(".st-written").inner_text()
        page.locator(".st-plot").first.hover()
        assert "step" in page.locator(".st-chart .ch-tip").first.inner_text()
        for box in page.locator(".st-run input").all():
            box.check()
        page.wait_for_function("() => document.querySelector('.st-plot').querySelectorAll('path').length === 2")
        assert page.evaluate(CONTRAST) == []
        with (studio.runs_folder / "two" / "log.jsonl").open("a") as log:  # it goes on
            log.write(json.dumps({"event": "sample", "step": 60, "text": "the newest words"}) + "\n")
        page.clock.run_for(2000)
        page.get_by_text("the newest words").wait_for()
        page.get_by_label("log scale").check()
        assert "log=1" in page.url
        chosen = page.url
        page.goto(chosen)
        page.wait_for_function("() => document.querySelector('.st-plot')?.querySelectorAll('path').length === 2")


@pytest.mark.slow
def test_pictures_of_every_page(tmp_path):
    """The command that makes them, for one width: a picture for each page, and none of them empty."""
    pytest.importorskip("playwright.sync_api", reason="needs playwright")
    if CHROMIUM is None:
        pytest.skip("needs Chromium")
    command = [sys.executable, "-m", "clearhead.studio.screenshots", str(tmp_path / "shots"), "--widths", "768"]
    done = subprocess.run([*command, "--themes", "dark", "--languages", "zh"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    names = {path.name.removesuffix("-768-dark-zh.png") for path in (tmp_path / "shots").iterdir()}
    assert {"contents", "runs", "chapter-gpt2", "lab-attention"} <= names
    assert all(path.stat().st_size > 10_000 for path in (tmp_path / "shots").iterdir())
