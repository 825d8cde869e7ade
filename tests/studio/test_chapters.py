"""Every chapter in a real browser: read to its end in both languages and themes, with a sentence of one's own."""

import contextlib
import io
import json
from pathlib import Path

import pytest

import clearhead.studio
from clearhead import zoo
from clearhead.pipeline.retrieval import with_store
from tests.studio.browser import CONTRAST, browser, settled, studio, visit  # noqa: F401 (fixtures)

CHAPTERS = sorted(path.stem for path in (Path(clearhead.studio.__file__).parent / "web/chapters").glob("*.js"))
# Models that a chapter is about: without them it is not listed.
NEEDS = {"bottleneck": ["rnn-en-de", "rnn-attention-en-de", "translate-en-de"], "words": ["glove"],
         "library": ["retro"]}  # fmt: skip
LISTED = [slug for slug in CHAPTERS if set(NEEDS.get(slug, [])) <= set(zoo.cards())]
# Another model that is small, and how many figures it goes without: those that are about one shipped model.
SMALL = {"gpt2": ("random-gpt2", 0), "layers": ("random-gpt2", 0), "why": ("random-gpt2", 1)}
# How often a changed sentence is asked about at least: figures that show one answer ask once.
ASKED = {"words": 1}
# Prose and words around figures in 中文 that hold no Chinese, or a run of English that was forgotten.
ENGLISH = r"""
() => [...document.querySelectorAll(".st-article h1, .st-lede, .st-prose, .st-control-name, .ch-question, figcaption")]
  .filter((one) => one.checkVisibility()).map((one) => {
    const copy = one.cloneNode(true);
    copy.querySelectorAll("code, em").forEach((part) => part.remove()); // code, and examples in the model's language
    return copy.textContent.trim();
  }).filter((text) => text && (!/[\u4e00-\u9fff]/.test(text) || /([A-Za-z]{2,}[ ,]+){7,}/.test(text)))
"""
# Names of rows and columns that are cut off although all cells fit; and numbers of a step that stand out of sight.
CUT = r"""
() => [...document.querySelectorAll(".ch-scroll")].filter((one) => one.checkVisibility()).flatMap((box) => {
  const edge = box.getBoundingClientRect().right + 1, right = (one) => one.getBoundingClientRect().right;
  const whole = [...box.querySelectorAll(".ch-matrix")].filter((one) => right(one.querySelector("canvas")) <= edge);
  const names = whole.flatMap((one) => [...one.querySelectorAll("text")]);
  const steps = box.closest('[data-question="alignment-steps"]');
  const spans = steps ? [...box.querySelectorAll("span")] : [];
  const numbers = spans.filter((one) => /^−?[\d.]+( %)?$/.test(one.textContent));
  return [...names, ...numbers].filter((one) => right(one) > edge).map((one) => one.textContent);
})
"""


def read_through(page):
    """Scroll from figure to figure, as nothing is asked before it is near. Gives how many there are."""
    page.wait_for_function("() => document.querySelector('.st-kicker')?.textContent")
    figures = page.locator(".st-live:visible")
    count = figures.count()
    for n in range(count):
        figures.nth(n).scroll_into_view_if_needed()
        figures.nth(n).locator("figcaption, .st-error").first.wait_for(state="attached")
    page.wait_for_function("() => !document.querySelector('[aria-busy], .st-thinking')")
    assert page.locator(".st-error:visible").all_inner_texts() == []
    settled(page, count)
    return count


def words(page):
    return page.locator(".st-article h1, .st-prose, .ch-question, figcaption").all_inner_texts()


def as_loaded(studio, name, store=None):  # noqa: F811
    """A model as the page has loaded it."""
    pipe = studio.models.get(name)
    return pipe if store is None else with_store(pipe, studio.stores.get(store))


@pytest.mark.parametrize("slug", LISTED)
def test_a_chapter_is_read_to_its_end(slug, browser, studio, monkeypatch, tmp_path):  # noqa: F811
    with visit(browser, studio, f"/chapters/{slug}") as page:
        count = read_through(page)
        assert count >= 4
        english = words(page)
        assert page.evaluate(CONTRAST) == []

        page.get_by_role("button", name="中文").click()
        page.get_by_role("button", name="深色页面").click()
        chinese = words(page)
        assert [text for text in english if text.strip() and text in chinese] == []
        assert page.evaluate(ENGLISH) == []
        assert page.locator('.ch-figure:not([data-theme="dark"])').count() == 0
        assert page.evaluate(CONTRAST) == []

        before = page.locator(".ch-body").all_inner_texts()
        page.set_viewport_size({"width": 360, "height": 800})
        page.wait_for_timeout(200)
        assert page.evaluate("document.documentElement.scrollWidth") == 360
        assert page.evaluate(CUT) == []
        page.set_viewport_size({"width": 1280, "height": 900})

        asked = []
        page.on("request", lambda one: asked.append(one.post_data) if one.url.endswith("/api/ask") else None)
        model, fewer = SMALL.get(slug, (None, 0))
        if model is not None:
            page.locator(".st-bar select").select_option(model)
        sentence = page.locator('.st-bar textarea[name="text"]')
        sentence.fill("Now " + sentence.input_value())
        page.wait_for_function("() => location.search.includes('text=Now')")
        assert read_through(page) == count - fewer
        after = page.locator(".ch-body").all_inner_texts()
        assert any(old != new for old, new in zip(before, after, strict=False))  # numbers on a canvas are no text
        assert sum("Now " in question for question in asked) >= ASKED.get(slug, 2)

        code = page.locator(".st-code code").last.inner_text()
        monkeypatch.chdir(tmp_path)  # where it saves what it found
        monkeypatch.setattr("clearhead.load", lambda *named, **more: as_loaded(studio, *named, **more))
        with contextlib.redirect_stdout(io.StringIO()) as said:
            exec(compile(code, slug, "exec"), {"__name__": "__main__"})
        assert said.getvalue().strip()


@pytest.mark.parametrize("slug", NEEDS)
def test_a_chapter_without_its_models_is_not_listed_and_says_so(slug, browser, studio):  # noqa: F811
    def poorer(route):
        answer = route.fetch()
        state = answer.json()
        state["models"] = [model for model in state["models"] if model["name"] not in NEEDS[slug]]
        route.fulfill(response=answer, json=state)

    with visit(browser, studio, "/lab?model=random-gpt2&question=parameters") as page:
        page.route("**/api/state", poorer)
        page.goto(studio.address + "/")
        page.locator(".st-contents-list a").first.wait_for()
        links = page.locator(".st-contents-list a").evaluate_all("(all) => all.map((one) => one.pathname)")
        assert f"/chapters/{slug}" not in links and "/chapters/gpt2" in links
        numbers = page.locator("ol.st-contents-list .st-number").all_inner_texts()
        assert numbers == [str(n + 1) for n in range(len(numbers))]
        page.goto(f"{studio.address}/chapters/{slug}")
        page.locator(".st-error").wait_for()
        assert all(name in page.locator(".st-error").inner_text() for name in NEEDS[slug])
        page.get_by_role("button", name="中文").click()
        assert "不在这里" in page.locator(".st-error").inner_text()
        assert page.locator(".st-live").count() == 0


def test_what_is_chosen_in_one_step_is_chosen_in_all(browser, studio):  # noqa: F811
    with visit(browser, studio, "/chapters/attention") as page:
        read_through(page)
        steps = page.locator('.st-live[data-question="attention-steps"]')
        assert steps.count() == 6
        steps.nth(1).locator('.ch-tok[data-at="t7"]').click()
        steps.nth(4).locator('.ch-controls [data-at="head1"]').click()
        page.get_by_role("button", name="中文").click()
        for n in range(6):
            assert steps.nth(n).locator(".ch-tok.ch-on").get_attribute("data-at") == "t7"
            assert steps.nth(n).locator('.ch-controls [data-at="head1"]').get_attribute("aria-pressed") == "true"
        assert "100.0 %" in steps.nth(3).inner_text()
        page.locator(".st-choice select").select_option(label="最后一层")
        page.wait_for_function("() => document.querySelector('[data-question=attention] select').value === '2'")
        read_through(page)


def test_a_translation_is_written(browser, studio):  # noqa: F811
    with visit(browser, studio, "/chapters/transformer") as page:
        page.locator(".st-writer .st-button").click()
        page.locator(".st-writer .st-button").wait_for()
        assert "Mädchen" in page.locator(".st-written").inner_text()


def test_a_next_token_that_is_chosen_joins_the_sentence(browser, studio):  # noqa: F811
    with visit(browser, studio, "/chapters/gpt2?model=random-gpt2&text=the+cat") as page:
        settled(page)
        page.locator('[data-question="next-token"] .ch-ranked > button').nth(1).click()
        page.wait_for_function("() => document.querySelector('.st-bar textarea').value.length > 'the cat'.length")
        page.wait_for_function("() => new URLSearchParams(location.search).get('text').length > 'the cat'.length")


def test_the_model_writes_with_what_is_set_in_the_figure(browser, studio):  # noqa: F811
    with visit(browser, studio, "/chapters/gpt2?model=random-gpt2") as page:
        figure = page.locator('[data-question="sampling"]')
        figure.scroll_into_view_if_needed()
        slider = figure.locator('input[data-at="temperature"]')
        slider.wait_for()
        slider.fill("0.5")
        slider.dispatch_event("change")
        figure.locator('[data-at="again"]').click()  # the model draws with it, and the slider stays where it is
        figure.locator(".ch-tok").first.wait_for()
        assert slider.input_value() == "0.5"
        with page.expect_request("**/api/generate") as asked:
            page.locator(".st-writer .st-button").click()
        assert json.loads(asked.value.post_data)["options"]["temperature"] == 0.5
        page.locator(".st-writer .st-button").wait_for()


def test_a_neuron_that_is_chosen_is_looked_up(browser, studio):  # noqa: F811
    with visit(browser, studio, "/chapters/why?model=random-gpt2") as page:
        neurons, places = (page.locator(f'[data-question="{name}"]') for name in ("neurons", "top-tokens"))
        neurons.scroll_into_view_if_needed()
        neurons.locator("canvas").wait_for()
        places.locator("figcaption").wait_for()
        name = neurons.locator('[data-row="1"]').text_content().split("] ")[-1]
        assert places.locator(".ch-question", has_text=f"{name} ").count() == 0
        neurons.locator("canvas").click(position={"x": 9, "y": 30})  # the second row
        places.locator(".ch-question", has_text=f"{name} ").wait_for()


# ---- Words as vectors


def field(page, label):
    return page.locator(".st-control", has_text=label).locator("input, textarea, select")


def figure_at(page, question, n=0):
    one = page.locator(f'.st-live[data-question="{question}"]').nth(n)
    one.scroll_into_view_if_needed()
    one.locator("figcaption, .st-error").first.wait_for()
    return one


def test_words_come_before_the_other_chapters(browser, studio):  # noqa: F811
    with visit(browser, studio, "/") as page:
        page.locator(".st-contents-list a").first.wait_for()
        links = page.locator("ol.st-contents-list a").evaluate_all("(all) => all.map((one) => one.pathname)")
        assert links[0] == "/chapters/words"
        page.goto(studio.address + "/chapters/words")
        page.locator(".st-turn a").first.wait_for()
        assert page.locator(".st-turn a").first.get_attribute("rel") == "next"


def test_a_window_slides_over_the_sentence(browser, studio):  # noqa: F811
    with visit(browser, studio, "/chapters/words?text=One+two+three+four+five+two") as page:
        figure = page.locator('[data-kind="skip-gram"]')
        figure.wait_for()
        centre = figure.locator(".st-centre")
        assert centre.inner_text() == "three"
        assert figure.locator(".st-pairs span").all_inner_texts() == [
            "three → one", "three → two", "three → four", "three → five"
        ]  # fmt: skip
        assert "18 pairs" in figure.locator("figcaption").inner_text()  # 2 + 3 + 4 + 4 + 3 + 2
        centre.press("ArrowRight")  # the keyboard slides it
        assert centre.inner_text() == "four" and page.evaluate("document.activeElement.textContent") == "four"
        figure.locator('[data-at="word0"]').click()
        figure.locator('[data-at="group-1"]').click()
        assert figure.locator(".st-pairs span").all_inner_texts() == ["one → two"]
        assert "10 pairs" in figure.locator("figcaption").inner_text()
        grid = figure.locator("canvas.ch-cells")
        grid.focus()
        grid.press("ArrowRight")
        grid.press("ArrowLeft")
        grid.press("ArrowRight")
        assert "one → two · 1" in figure.locator(".ch-tip").inner_text()
        page.locator(".st-bar textarea").fill("a b")
        page.wait_for_function("() => document.querySelectorAll('[data-kind=skip-gram] .ch-tok').length === 2")
        assert figure.locator('[data-at="group-1"]').get_attribute("aria-pressed") == "true"  # the window stays


def test_words_of_ones_own(browser, studio):  # noqa: F811
    with visit(browser, studio, "/chapters/words") as page:
        near = figure_at(page, "neighbours")
        near.locator('[data-at="word1"]').click()  # goes on from there
        word = near.locator('[data-at="word1"]').inner_text().split()[0]
        page.wait_for_function("(word) => document.querySelector('.st-control input').value !== 'river'", arg=word)
        near.locator(".ch-question", has_text=field(page, "A word").first.input_value()).wait_for()
        field(page, "A word").first.fill("Xyzzyq")
        near.locator(".st-error").wait_for()
        assert "no word “Xyzzyq”" in near.locator(".st-error").inner_text()
        page.get_by_role("button", name="中文").click()
        assert "没有“Xyzzyq”" in near.locator(".st-error").inner_text()
        page.get_by_role("button", name="English").click()

        assert figure_at(page, "word-map", 0).locator("svg line[stroke-width='3']").count() == 12  # one-hot
        assert figure_at(page, "word-map", 1).locator('canvas[data-at="numbers"]').count() == 1
        angles = figure_at(page, "word-map", 2)
        assert angles.locator(".ch-group").count() == 0  # one question, as its title says
        rows = angles.locator("tbody tr")
        assert rows.first.inner_text().split()[0] == "water"
        rows.nth(2).hover()
        assert angles.locator("svg line[stroke-dasharray]").get_attribute("visibility") == "visible"
        rows.nth(2).locator("button").press("Enter")
        assert rows.first.inner_text().split()[0] == "river"

        field(page, "A sum of words").fill("Paris - France + Italy")
        sums = figure_at(page, "neighbours", 1)
        sums.locator(".ch-question", has_text="Paris - France + Italy").wait_for()
        assert sums.locator(".ch-ranked > button").first.inner_text().split()[0] == "rome"
        assert sums.locator("svg line[marker-end]").count() == 2
        odd = figure_at(page, "word-map", 4)
        field(page, "Several words").fill("apple pear hammer banana")
        odd.locator("figcaption", has_text="hammer").wait_for()
        assert odd.locator(".ch-ranked > button").last.inner_text().split()[0] == "hammer"


def test_each_use_has_a_vector_of_its_own(browser, studio):  # noqa: F811
    with visit(browser, studio, "/chapters/words") as page:
        figure = figure_at(page, "word-in-context")
        assert "“bank”" in figure.locator(".ch-question").inner_text()
        assert "of 40,000" in figure.locator("figcaption").inner_text()  # held against the reader's table
        uses = figure.locator(".ch-use")
        assert uses.count() == 6 and uses.first.locator("b").inner_text() == "bank"
        uses.nth(3).click()
        assert uses.nth(3).get_attribute("aria-pressed") == "true"
        figure.locator('[data-at="use3"]').focus()
        figure.locator('[data-at="use3"]').press("ArrowRight")
        assert "bank" in figure.locator(".ch-tip").inner_text()

        field(page, "Looked at").select_option(label="before the first layer")
        figure.locator(".ch-name", has_text="before the first layer").wait_for()
        field(page, "A word with two meanings").select_option("stick")  # with its own sentences
        figure.locator(".ch-question", has_text="stick").wait_for()
        assert "stamps" in field(page, "Sentences with").input_value()
        field(page, "Sentences with").fill("The stick broke.\nThe stamps are old.")
        figure.locator(".st-error").wait_for()
        assert "does not stand in “The stamps are old.”" in figure.locator(".st-error").inner_text()
        field(page, "Sentences with").fill("The stick broke.\nMy Stick is old.\nOld stamps stick.")
        figure.locator(".ch-use").nth(2).wait_for()
        assert "within a meaning" not in figure.locator("figcaption").inner_text()  # none were told apart
        field(page, "A word with two meanings").select_option("bank")
        figure.locator(".ch-use").nth(5).wait_for()
        assert "river" in field(page, "Sentences with").input_value()
