"""The studio with a library: stores by name, passages rewritten for one request, and the chapter in a real browser."""

import contextlib
import hashlib
import io
import json
import threading
import time
from pathlib import Path

import pytest

pytest.importorskip("lancedb")
pytest.importorskip("starlette")

import uvicorn

from clearhead.errors import InputError
from clearhead.retrieval import Document, build
from clearhead.server.guard import ServerAddress
from clearhead.server.start import listen
from clearhead.server.store_table import StoreTable
from clearhead.studio.app import Studio
from tests.studio.browser import CONTRAST, browser, visit  # noqa: F401 (a fixture)
from tests.studio.conftest import client_of, events_of
from tests.studio.test_chapters import ENGLISH, as_loaded, read_through, words
from tests.tiny import tiny_pipeline

QUESTION = "a dog sat on?"
ONE = ["the cat sat on the mat", "a dog sat on the sofa", "a cat ran", "the dog ran unbelievably", "the mat sat"]
SIZES = {
    "num_hidden_layers": 2, "chunked_attention_layers": [1, 2], "chunk_size": 64, "embedding_size": None,
    "encoder_hidden_size": 8, "encoder_heads": 2, "encoder_head_dim": 4, "max_position_embeddings": 256,
    "eos_token_id": None,
}  # fmt: skip


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("library")
    pipe = tiny_pipeline("retro", **SIZES | {"eos_token_id": 0})
    pipe.save(root / "small-retro")
    tiny_pipeline("bert", "features", max_position_embeddings=128).save(root / "encoder")
    for name, texts in (("shelf", ONE), ("shelf-edited", [text.replace("sofa", "mat and ran") for text in ONE])):
        documents = [Document(f"book {n}: page", text) for n, text in enumerate(texts)]
        build(root / name, documents, encoder=str(root / "encoder"), tokenizer=str(root / "small-retro"))
    return root


@pytest.fixture(scope="module")
def library(folders):
    """Its address: one small RETRO, two stores."""
    listener = listen("127.0.0.1", 0)
    port = listener.getsockname()[1]
    made = Studio(
        [str(folders / "small-retro")],
        stores=[str(folders / "shelf"), str(folders / "shelf-edited")],
        address=ServerAddress("127.0.0.1", port),
    )
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


@pytest.fixture(scope="module")
def page(folders):
    studio = Studio([str(folders / "small-retro")], stores=[str(folders / "shelf"), str(folders / "shelf-edited")])
    with client_of(studio) as client:
        yield client


def asked(page, question="passages", status=200, **more):
    body = {"model": "small-retro", "question": question, "text": QUESTION, **more}
    answer = page.post("/api/ask", json=body)
    assert answer.status_code == status, answer.text
    return answer.json()["error"]["message"] if status != 200 else events_of(answer)[-1]


# ---- the server


def test_stores_are_known_by_name(page, folders):
    listed = [store["name"] for store in page.get("/api/state").json()["stores"]]
    assert listed[-2:] == ["shelf", "shelf-edited"]
    found = asked(page, params={"store": "shelf", "ask": "yes"})["finding"]
    assert found["store"] == "shelf" and str(folders) not in json.dumps(found)
    assert {one["document"] for one in found["passages"]} <= {f"book {n}: page" for n in range(5)}
    other = asked(page, params={"store": "shelf-edited", "ask": "yes"})["finding"]
    assert other["store"] == "shelf-edited"
    without = asked(page, params={"ask": "yes"})["finding"]
    assert without["store"] == listed[0]  # none named: the first
    assert "There is no store named" in asked(page, params={"store": "shelv"}, status=404)


def test_no_name_of_a_store_is_a_path(page, folders):
    for name in (str(folders / "shelf"), "../shelf", "shelf/../shelf", "s3://bucket/store", "."):
        assert "There is no store named" in asked(page, params={"store": name}, status=404)


def test_a_folder_that_is_none_is_said_at_once(folders):
    with pytest.raises(InputError, match="There is no store at"):
        StoreTable([str(folders / "nowhere")])
    twice = StoreTable([str(folders / "shelf"), str(folders / "shelf")])
    assert twice.names[-2:] == ["shelf", "shelf-2"]


def test_an_edit_is_for_one_request_alone(page, folders):
    before = asked(page, params={"store": "shelf", "ask": "yes"})["finding"]
    digest = _digest(folders / "shelf")
    first = before["passages"][0]
    edit = {"document": first["document"], "position": first["position"], "text": "a dog sat on. a dog sat on? unknown"}
    after = asked(page, params={"store": "shelf", "ask": "yes"}, edits=[edit])["finding"]
    shown = [one for one in after["passages"] if one["document"] == first["document"]]
    assert all((one["text"] + one["continuation"]).strip() == edit["text"] for one in shown)
    assert after["weights"] != before["weights"]
    again = asked(page, params={"store": "shelf", "ask": "yes"})["finding"]
    assert again["passages"] == before["passages"] and _digest(folders / "shelf") == digest
    mapped = asked(page, "store-map", params={"store": "shelf", "ask": "yes"}, edits=[edit])["finding"]
    assert any(one["text"].startswith(edit["text"][:20]) for one in mapped["passages"])


def _digest(folder: Path) -> str:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return hashlib.sha256(b"".join(str(path).encode() + path.read_bytes() for path in files)).hexdigest()


def test_edits_are_checked(page):
    good = {"document": "book 1: page", "position": 0, "text": "a dog"}
    assert "looks nothing up" in asked(page, "next-token", edits=[good], status=400)
    for wrong in (
        [good | {"position": -1}], [good | {"position": "one"}], [good | {"text": 3}], [good | {"path": "x"}],
        [{"document": "book 1: page"}], "a dog", [good] * 9, [good | {"text": "a" * 30_000}],
    ):  # fmt: skip
        assert asked(page, params={"store": "shelf"}, edits=wrong, status=400)
    ended = asked(page, params={"store": "shelf", "ask": "yes"}, edits=[good | {"document": "book 77"}])
    assert ended["event"] == "error" and "no passage 0 of a document book 77" in ended["error"]["message"]
    assert "没有文档 book 77" in ended["error"]["zh"]
    ended = asked(page, params={"store": "shelf", "ask": "yes"}, edits=[good | {"text": " "}])
    assert "has to say something" in ended["error"]["message"]


def test_the_saved_page_has_the_edit(page):
    edit = {"document": "book 1: page", "position": 0, "text": "a dog sat on a king"}
    body = {"model": "small-retro", "question": "passages", "text": QUESTION, "edits": [edit], "as": "json"}
    body["params"] = {"store": "shelf", "ask": "yes", "neighbors": 5}
    assert "king" in page.post("/api/page", json=body).text


# ---- the chapter


def test_the_chapter_is_read_to_its_end(browser, library, monkeypatch, tmp_path):  # noqa: F811
    with visit(browser, library, "/chapters/library?text=a+dog+sat+on%3F") as page:
        assert read_through(page) == 5
        english = words(page)
        assert page.evaluate(CONTRAST) == []
        names = page.locator(".st-plates").first.locator(".st-plate-name").all_inner_texts()
        assert names[-3:] == ["shelf", "shelf-edited", "no library"]
        page.get_by_role("button", name="中文").click()
        page.get_by_role("button", name="深色页面").click()
        chinese = words(page)
        assert [text for text in english if text.strip() and text in chinese] == []
        assert page.evaluate(ENGLISH) == []
        assert page.evaluate(CONTRAST) == []
        page.set_viewport_size({"width": 360, "height": 800})
        page.wait_for_timeout(200)
        assert page.evaluate("document.documentElement.scrollWidth") == 360
        code = page.locator(".st-code code").last.inner_text()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("clearhead.load", lambda *named, **more: as_loaded(library, *named, **more))
    with contextlib.redirect_stdout(io.StringIO()) as said:
        exec(compile(code, "library", "exec"), {"__name__": "__main__"})
    assert said.getvalue().strip() and (tmp_path / "library.html").is_file()


def test_another_library_and_a_passage_of_ones_own(browser, library):  # noqa: F811
    with visit(browser, library, "/chapters/library?text=a+dog+sat+on%3F") as page:
        asked = []
        page.on("request", lambda one: asked.append(one.post_data_json) if one.url.endswith("/api/ask") else None)
        read_through(page)
        page.locator(".st-choice select").select_option("shelf-edited")
        page.wait_for_function("() => document.querySelector('.st-edit textarea')?.value")
        read_through(page)
        assert asked[-1]["params"]["store"] == "shelf-edited" and "edits" not in asked[-1]

        field = page.locator(".st-edit textarea").first
        whole = field.input_value()
        field.fill(f"Question: {QUESTION} Answer: king")  # still about the question, so it is found
        page.wait_for_function("() => document.querySelector('.st-edit .ch-link:not([hidden])')")
        figure = page.locator('.st-live[data-question="passages"]').last
        figure.locator(".ch-passage", has_text="king").wait_for()
        page.wait_for_function("() => !document.querySelector('[aria-busy], .st-thinking')")
        edited = [one for one in asked if "edits" in one]
        assert edited and edited[-1]["edits"][0]["text"] == f"Question: {QUESTION} Answer: king"
        plates = page.locator(".st-plates").last
        assert plates.locator(".st-plate-name").all_inner_texts() == ["As it stands in shelf-edited", "With your words"]
        page.get_by_role("button", name="Put it back").click()
        assert field.input_value() == whole
        figure.locator(".ch-passage", has_text="king").wait_for(state="detached")


def test_words_light_up_and_are_chosen(browser, library):  # noqa: F811
    with visit(browser, library, "/chapters/library?text=a+dog+sat+on%3F") as page:
        read_through(page)
        encoder, decoder = (page.locator('.st-live[data-question="passages"]').nth(n) for n in (0, 1))
        assert decoder.locator(".ch-filler").count() == 1  # what fills the chunk up is one mark
        written = decoder.locator('.ch-tok[role="button"]')
        written.nth(1).click()
        assert written.nth(1).get_attribute("aria-pressed") == "true"
        shares = [float(share) for share in decoder.locator(".ch-piece").evaluate_all(
            "(all) => all.map((one) => one.dataset.share)")]  # fmt: skip
        assert sum(shares) == pytest.approx(1, abs=1e-3)
        piece = encoder.locator(".ch-piece").nth(2)
        piece.hover()
        inked = encoder.locator(".ch-tokens .ch-tok").evaluate_all(
            "(all) => all.filter((one) => one.style.background).length"
        )
        assert inked > 0
        piece.click()
        assert encoder.locator(".ch-piece.ch-on").count() == 1
        ablation = page.locator('.st-live[data-question="retrieval-ablation"]')
        ablation.locator(".ch-change").first.press("Enter")
        assert ablation.locator(".ch-change").first.get_attribute("aria-pressed") == "true"
        near = page.locator('.st-live[data-question="store-map"] .ch-ranked > button')
        near.nth(2).click()
        assert (
            near.nth(2).locator(".ch-found").inner_text()
            in page.locator('.st-live[data-question="store-map"] .ch-source').inner_text()
        )


def test_a_store_is_chosen_in_the_lab(browser, library):  # noqa: F811
    path = "/lab?model=small-retro&question=passages&text=a+dog+sat+on%3F&.ask=yes&.store=shelf-edited"
    with visit(browser, library, path) as page:
        page.locator("figcaption").wait_for(timeout=60_000)
        assert page.locator('.st-store select[name="store"]').input_value() == "shelf-edited"


def test_without_a_store_the_chapter_says_so(browser, library):  # noqa: F811
    def poorer(route):
        answer = route.fetch()
        route.fulfill(response=answer, json=answer.json() | {"stores": []})

    with visit(browser, library, "/lab?model=random-gpt2&question=parameters") as page:
        page.route("**/api/state", poorer)
        page.goto(library.address + "/chapters/library")
        page.locator(".st-error").wait_for()
        assert "factbook" in page.locator(".st-error").inner_text()
