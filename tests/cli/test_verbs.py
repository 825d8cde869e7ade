"""classify, tag, answer, translate, summarize, search and fill: each says what its method says, in every form."""

import csv
import io
import json
from dataclasses import asdict
from pathlib import Path

import pytest
from typer.testing import CliRunner

import clearhead as ch
from clearhead.cli import app, writing
from clearhead.errors import ClearheadError, InputError
from tests.tiny import tiny_pipeline, tiny_translator

TEXTS = ["the cat sat on the mat", "a dog ran", "the sofa"]
TAGS = {0: "O", 1: "B-PER", 2: "I-PER"}


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """The folder of a tiny model for each job."""
    root = tmp_path_factory.mktemp("models")
    made = {
        "classifier": tiny_pipeline("bert", "sequence-classification", id2label={0: "good", 1: "bad", 2: "so-so"}),
        "several": tiny_pipeline(
            "bert", "sequence-classification", id2label={0: "x", 1: "y"}, problem_type="multi_label_classification"
        ),
        "number": tiny_pipeline("bert", "sequence-classification", id2label={0: "LABEL_0"}, problem_type="regression"),
        "tagger": tiny_pipeline("bert", "token-classification", id2label=TAGS),
        "reader": tiny_pipeline("bert", "question-answering"),
        "masked": tiny_pipeline("bert"),
        "encoder": tiny_pipeline("bert", "features"),
        "translator": tiny_translator(),
        "writer": tiny_pipeline("bart", "seq2seq-lm"),
    }
    for name, pipe in made.items():
        pipe.save(root / name)
    return {name: str(root / name) for name in made}


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("clearhead.files.cache_folder", lambda name: tmp_path / "cache" / name)
    return tmp_path


def run(*words, typed=None, columns=100):
    result = CliRunner().invoke(app, list(words), input=typed, env={"COLUMNS": str(columns)})
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def data(*words, **options):
    return json.loads(run(*words, "--json", **options).stdout)


def near(value):
    """The same, but for the last digits: other texts in the batch, other sums."""
    if isinstance(value, float):
        return pytest.approx(value, rel=1e-4, abs=1e-6)
    if isinstance(value, dict):
        return {key: near(one) for key, one in value.items()}
    return [near(one) for one in value] if isinstance(value, list) else value


def rows(path):
    with Path(path).open(newline="") as file:
        return list(csv.DictReader(file))


# ---- classify


def test_classify(models, here):
    pipe = ch.load(models["classifier"])
    wanted = [near([asdict(one) for one in found]) for found in pipe.classify(TEXTS)]
    one = data("classify", TEXTS[0], "-m", models["classifier"])
    assert one["labels"] == wanted[0] and one["text"] == TEXTS[0]
    assert (one["label"], one["score"]) == (one["labels"][0]["label"], one["labels"][0]["score"])
    several = data("classify", "-", "-m", models["classifier"], typed="\n".join(TEXTS))["results"]
    assert [row["labels"] for row in several] == wanted and [row["text"] for row in several] == TEXTS
    assert len(data("classify", TEXTS[0], "-m", models["classifier"], "--top-k", "2")["labels"]) == 2
    (here / "t.csv").write_text("text,label\n" + "".join(f"{text},x\n" for text in TEXTS))
    run("classify", "--file", "t.csv", "--out", "o.csv", "-m", models["classifier"])
    found = rows("o.csv")
    assert [row["label"] for row in found] == ["x"] * 3  # the column that was there
    assert [(row["predicted_label"], float(row["score"])) for row in found] == [
        (row[0]["label"], row[0]["score"]) for row in wanted
    ]


def test_classify_pairs(models, here):
    pipe = ch.load(models["classifier"])
    wanted = near([[asdict(one) for one in found] for found in pipe.classify(TEXTS, ["the cat"] * 3)])
    words = ("-m", models["classifier"])
    assert [row["labels"] for row in data("classify", *TEXTS, "--pair", "the cat", *words)["results"]] == wanted
    (here / "t.jsonl").write_text("".join(json.dumps({"a": text, "b": "the cat"}) + "\n" for text in TEXTS))
    found = data("classify", "--file", "t.jsonl", "--column", "a", "--pair-column", "b", *words)["results"]
    assert [row["labels"] for row in found] == wanted and found[0]["pair"] == "the cat"
    with pytest.raises(InputError, match="not both"):
        run("classify", "a", "--pair", "b", "--pair-column", "c", *words)
    with pytest.raises(InputError, match="goes with --file"):
        run("classify", "a", "--pair-column", "c", *words)
    with pytest.raises(InputError, match="same column"):
        run("classify", "--file", "t.jsonl", "--column", "a", "--pair-column", "a", *words)


def test_labels_of_ones_own(models):
    pipe = ch.load(models["masked"])
    wanted = near([asdict(one) for one in pipe.classify(TEXTS[0], labels=["cat", "dog"])])
    words = ("classify", TEXTS[0], "-m", models["masked"])
    assert data(*words, "--labels", "cat, dog")["labels"] == wanted
    assert data(*words, "--label", "cat", "--label", "dog")["labels"] == wanted
    other = [asdict(one) for one in pipe.classify(TEXTS[0], labels=["cat", "dog"], template="a {}!")]
    assert data(*words, "--labels", "cat,dog", "--template", "a {}!")["labels"] == near(other)
    for wrong, says in ((["--labels", "a", "--label", "b"], "not both"), (["--template", "{}"], "goes with --labels"),
                        (["--labels", ","], "labels")):  # fmt: skip
        with pytest.raises(InputError, match=says):
            run(*words, *wrong)


def test_pictures_of_labels(models):
    one = run("classify", TEXTS[0], "-m", models["classifier"]).output
    assert all(label in one for label in ("good", "bad", "so-so")) and "█" in one and "%" in one
    many = run("classify", *TEXTS, "-m", models["classifier"]).output.splitlines()
    best = [found[0].label for found in ch.load(models["classifier"]).classify(TEXTS)]
    assert [line.split("\t")[0] for line in many] == best and [line.split("\t")[2] for line in many] == TEXTS
    assert "%" not in run("classify", "the cat", "-m", models["number"]).output  # a number is no probability


def test_a_model_for_several_labels_gives_each_its_own_score(models, here):
    (here / "t.txt").write_text("the cat\n")
    run("classify", "--file", "t.txt", "--out", "o.csv", "-m", models["several"])
    labels = json.loads(rows("o.csv")[0]["labels"])
    assert labels == near([asdict(one) for one in ch.load(models["several"]).classify("the cat")])


# ---- fill


def test_fill(models, here):
    pipe = ch.load(models["masked"])
    texts = ["the [MASK] sat", "a [MASK] on the [MASK]"]
    wanted = near([[[asdict(one) for one in gap] for gap in pipe.fill(text, top_k=2)] for text in texts])
    words = ("--top-k", "2", "-m", models["masked"])
    assert data("fill", texts[0], *words)["gaps"] == wanted[0]
    assert [row["gaps"] for row in data("fill", *texts, *words)["results"]] == wanted
    (here / "t.txt").write_text("\n".join(texts))
    run("fill", "--file", "t.txt", "--out", "o.csv", *words)
    assert [row["token"].split() for row in rows("o.csv")] == [[gap[0]["token"] for gap in gaps] for gaps in wanted]
    with pytest.raises(InputError, match="row 2 of the texts"):
        run("fill", texts[0], "no gap", *words)


# ---- tag


def test_tag(models, here):
    pipe = ch.load(models["tagger"])
    wanted = near([[asdict(one) for one in found] for found in pipe.tag(TEXTS)])
    assert [row["entities"] for row in data("tag", *TEXTS, "-m", models["tagger"])["results"]] == wanted
    words = near([asdict(one) for one in pipe.tag(TEXTS[0], words=True)])
    assert data("tag", TEXTS[0], "--words", "-m", models["tagger"])["words"] == words
    (here / "t.txt").write_text("\n".join(TEXTS))
    run("tag", "--file", "t.txt", "--out", "o.jsonl", "-m", models["tagger"])
    assert [json.loads(line)["entities"] for line in (here / "o.jsonl").read_text().splitlines()] == wanted
    shown = run("tag", TEXTS[0], "--words", "-m", models["tagger"]).output.splitlines()
    assert [line.split()[:2] for line in shown] == [[row["text"], row["label"]] for row in words]


def test_entities_are_marked_in_their_text():
    from rich.console import Console

    from clearhead.pipeline import Entity
    from clearhead.views.terminal.results import draw_entities

    text = "Ada met Bo in Ulm."
    found = [Entity("PER", 0.9, 0, 3, "Ada"), Entity("PER", 0.8, 8, 10, "Bo"), Entity("LOC", 0.7, 14, 17, "Ulm")]
    console = Console(width=60, record=True, file=io.StringIO())
    console.print(draw_entities(text, found))
    lines = [line.rstrip() for line in console.export_text().splitlines()]
    assert lines[0].replace("\u00a0", " ") == "Ada PER met Bo PER in Ulm LOC."
    assert lines[2:] == ["LOC  Ulm 70.0%", "PER  Ada 90.0%  Bo 80.0%"]
    console.print(draw_entities(text, found, colours=False))
    assert "[Ada\u00a0PER] met [Bo\u00a0PER] in [Ulm\u00a0LOC]." in console.export_text()


# ---- answer


def test_answer(models, here):
    pipe = ch.load(models["reader"])
    question, passage = "the dog", "a dog sat on the sofa. the cat ran on the mat."
    wanted = asdict(pipe.answer(question, passage))
    one = data("answer", question, passage, "-m", models["reader"])
    assert (one["answer"], one["start"], one["end"]) == (wanted["text"], wanted["start"], wanted["end"])
    assert one["score"] == near(wanted["score"])
    passages = ["the mat", passage, TEXTS[0]]
    best = pipe.answer(question, passages, top_k=3)
    for words, typed in ((passages, None), (["-"], "\n".join(passages))):
        found = data("answer", question, *words, "--top-k", "3", "-m", models["reader"], typed=typed)["answers"]
        assert [(row["text"], row["passage"]) for row in found] == [(row.text, row.passage) for row in best]
    (here / "notes").mkdir()
    (here / "notes" / "a.md").write_text("the mat\n\n" + passage.replace(". ", ".\n"))
    inside = data("answer", question, "--file", "notes", "-m", models["reader"])
    assert inside["source"].endswith("a.md") and inside["line"] in (1, 3)
    assert inside["context"][inside["start"] : inside["end"]] == inside["answer"]
    assert best[0].text in run("answer", question, *passages, "-m", models["reader"]).output


@pytest.mark.parametrize("passage", ["context", "passage"])
def test_answer_a_file_of_questions(models, here, passage):
    pipe = ch.load(models["reader"])
    asked = [("the dog", TEXTS[0]), ("a cat", TEXTS[1])]
    (here / "q.jsonl").write_text("".join(json.dumps({"question": q, passage: c}) + "\n" for q, c in asked))
    run("answer", "--file", "q.jsonl", "--out", "o.csv", "-m", models["reader"])
    found = rows("o.csv")
    assert [row["answer"] for row in found] == [pipe.answer(q, c).text for q, c in asked]
    assert [row["question"] for row in found] == ["the dog", "a cat"]


def test_a_passage_of_another_name_is_asked_for(models, here):
    (here / "q.csv").write_text("question,words\nwho?,a cat\n")
    with pytest.raises(InputError, match="--passage-column words"):
        run("answer", "--file", "q.csv", "-m", models["reader"])


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["-", "a cat"], "cannot be the question"),
        (["who?"], "no passage"),
        ([], "no question"),
        (["who?", "a", "--file", "b.txt"], "not both"),
        (["who?", "a", "--out", "o.csv"], "leave QUESTION out"),
        (["who?", "a", "--column", "b"], "goes with --file"),
        (["who?", "--file", "none"], "does not exist"),
    ],
)
def test_answer_says_what_is_wrong(models, here, words, says):
    with pytest.raises(InputError, match=says):
        run("answer", *words, "-m", models["reader"])


# ---- translate, summarize


def test_translate(models, here, monkeypatch):
    pipe = ch.load(models["translator"])
    wanted = [pipe.translate(text, max_new_tokens=5) for text in TEXTS]
    words = ("-m", models["translator"], "--max-new-tokens", "5")
    assert data("translate", TEXTS[0], *words)["translation"] == wanted[0]
    assert [row["translation"] for row in data("translate", *TEXTS, *words)["results"]] == wanted
    assert run("translate", "-", *words, typed="\n".join(TEXTS)).stdout.splitlines() == wanted
    (here / "t.txt").write_text("\n".join(TEXTS))
    run("translate", "--file", "t.txt", "--out", "o.txt", *words)
    assert (here / "o.txt").read_text().splitlines() == wanted
    with pytest.raises(ClearheadError, match="languages"):
        run("translate", "the cat", "--tgt-lang", "de", *words)
    with pytest.raises(InputError, match="num_beams"):
        run("translate", "the cat", "--num-beams", "0", "-m", "nowhere")


def test_an_error_says_which_row_it_is_about(models, here):
    (here / "t.txt").write_text("the cat\n" * 5 + "the cat " * 200)
    with pytest.raises(InputError, match=r"about rows? \d.* of t.txt"):
        run("generate", "--file", "t.txt", "--out", "o.csv", "-m", "random-gpt2")
    assert not (here / "o.csv").exists()


def test_a_seed_gives_each_row_its_own_draws_in_any_batch(models, here, monkeypatch):
    pipe = ch.load(models["translator"])
    options = {"max_new_tokens": 6, "temperature": 2.0, "num_return_sequences": 2}
    wanted = pipe.translate(TEXTS, seed=7, **options)
    monkeypatch.setattr(writing, "BATCH", 2)
    words = ("--max-new-tokens", "6", "--temperature", "2", "--num-return-sequences", "2", "--seed", "7")
    (here / "t.txt").write_text("\n".join(TEXTS))
    run("translate", "--file", "t.txt", "--out", "o.csv", "-m", models["translator"], *words)
    found = [text for row in rows("o.csv") for text in (row["translation"], row["translation_2"])]
    assert found == wanted and len(set(found)) > 2


def test_summarize(models):
    wanted = ch.load(models["writer"]).summarize(TEXTS, max_new_tokens=4, num_beams=2)
    found = data("summarize", *TEXTS, "-m", models["writer"], "--max-new-tokens", "4", "--num-beams", "2")["results"]
    assert [row["summary"] for row in found] == wanted


# ---- generate


def test_generate_for_several_texts(here):
    pipe = ch.load("random-gpt2")
    wanted = [pipe.generate(text, max_new_tokens=4, choices=["yes", "no"]) for text in TEXTS]
    words = ("-m", "random-gpt2", "-n", "4", "--choice", "yes", "--choice", "no")
    assert [row["generated"] for row in data("generate", *TEXTS, *words)["results"]] == wanted
    (here / "t.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))
    run("generate", "--file", "t.jsonl", "--out", "o.csv", *words)
    assert [row["generated"] for row in rows("o.csv")] == wanted
    run("generate", "-", "--out", "lines.csv", *words, typed="\n".join(TEXTS))
    assert [row["generated"] for row in rows("lines.csv")] == wanted
    one = run("generate", "-", *words, typed="\n".join(TEXTS)).stdout  # a prompt may have several lines
    assert one.startswith("\n".join(TEXTS))
    for wrong in (["--speed"], ["--interactive"]):
        with pytest.raises(InputError, match="without"):
            run("generate", *TEXTS, *words, *wrong)
    with pytest.raises(InputError, match="cannot be the text"):
        run("generate", "-", "a", *words)
    with pytest.raises(InputError, match="goes with --file"):
        run("generate", "a", "--column", "x", *words)


# ---- search


def test_search_the_lines_of_a_file(models, here):
    lines = [*TEXTS, "", "the cat ran"]
    (here / "t.txt").write_text("\n".join(lines))
    texts = [line for line in lines if line]
    wanted = ch.load(models["encoder"]).search("a cat", texts, top_k=3)
    for words, typed in ((["t.txt"], None), (["-"], "\n".join(texts))):
        found = data("search", "a cat", *words, "--top-k", "3", "-m", models["encoder"], typed=typed)["results"]
        assert [row["text"] for row in found] == [hit.text for hit in wanted]
        assert [row["score"] for row in found] == near([hit.score for hit in wanted])
    found = data("search", "a cat", "t.txt", "--top-k", "4", "-m", models["encoder"])["results"]
    assert {row["text"]: row["line"] for row in found} == {text: lines.index(text) + 1 for text in texts}
    assert "t.txt:5" in run("search", "the cat ran", "t.txt", "-m", models["encoder"]).output


def test_search_a_folder_and_a_table(models, here):
    folder = here / "notes"
    (folder / "deep").mkdir(parents=True)
    (folder / "a.md").write_text("# the cat\nsat\n\n\na dog ran\n")
    (folder / "deep" / "b.txt").write_text("the sofa " * 200)
    (folder / ".hidden.txt").write_text("the mat")
    (folder / "bad.txt").write_bytes(b"caf\xe9")
    result = run("search", "a dog", "notes", "--top-k", "9", "--json", "-m", models["encoder"])
    assert "Left out" in result.stderr and "bad.txt" in result.stderr
    found = {(row["source"], row["line"]): row["text"] for row in json.loads(result.stdout)["results"]}
    assert found[str(folder.relative_to(here) / "a.md"), 1] == "# the cat\nsat"
    assert found[str(folder.relative_to(here) / "a.md"), 5] == "a dog ran"
    long = [text for (source, _), text in found.items() if source.endswith("b.txt")]
    assert all(len(text) <= 1000 for text in long)
    (here / "t.csv").write_text("id,body\n1,the cat\n2,a dog\n")
    row = data("search", "a dog", "t.csv", "--column", "body", "--top-k", "1", "-m", models["encoder"])["results"][0]
    assert (row["text"], row["line"]) == ("a dog", 3)


def test_vectors_are_kept_and_only_what_is_new_is_read(models, here, monkeypatch):
    read = []
    embed = ch.pipeline.TextPipeline.embed

    def watched(self, texts, **options):
        read.extend([texts] if isinstance(texts, str) else texts)
        return embed(self, texts, **options)

    monkeypatch.setattr(ch.pipeline.TextPipeline, "embed", watched)
    (here / "t.txt").write_text("\n".join(TEXTS))
    words = ("search", "a cat", "t.txt", "-m", models["encoder"])
    first = run(*words, "--json")
    assert "are kept in" in first.stderr and set(TEXTS) <= set(read)
    files = list((here / "cache").rglob("*.npz"))
    assert len(files) == 1
    read.clear()
    assert run(*words, "--json").stdout == first.stdout and read == ["a cat"]
    (here / "t.txt").write_text("\n".join([*TEXTS[1:], "the cat ran"]))
    read.clear()
    run(*words)
    assert sorted(read) == ["a cat", "the cat ran"]
    files[0].write_bytes(b"damaged")
    read.clear()
    run(*words)
    assert set(TEXTS[1:]) <= set(read)
    files[0].unlink()
    run(*words, "--no-keep")
    assert not list((here / "cache").rglob("*.npz"))


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["-", "t.txt"], "cannot be the query"),
        (["a", "none.txt"], "does not exist"),
        (["a", "t.tx"], "Did you mean t.txt"),
        (["a", "empty.txt"], "nothing to read"),
        (["a", "folder"], "holds no file"),
        (["a", "t.txt", "--column", "x"], "column of a table"),
        (["a", "t.txt", "--no-keep", "--cache", "x"], "Leave one out"),
    ],
)
def test_search_says_what_is_wrong(models, here, words, says):
    (here / "t.txt").write_text("the cat")
    (here / "empty.txt").write_text("\n")
    (here / "folder").mkdir()
    with pytest.raises(InputError, match=says):
        run("search", *words, "-m", models["encoder"])


# ---- all of them


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["tag", "hi"], "clearhead train tagging"),
        (["answer", "who?", "a cat"], "clearhead train question-answering"),
        (["summarize", "hi"], "clearhead train"),
        (["classify", "hi", "-m", "someone/unknown"], "here already: sentiment"),
        (["fill", "hi [MASK]", "-m", "someone/unknown"], "here already: bert-mini"),
        (["translate", "hi", "-m", "someone/unknown"], "here already: translate-en-de"),
        (["generate", "hi", "-m", "someone/unknown"], "here already: stories"),
        (["classify", "hi", "-m", "someone/bert-large"], "hub's cache.*here already: sentiment.$"),
    ],
)
def test_a_model_that_is_not_here(here, monkeypatch, words, says):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(ClearheadError, match=says):
        run(*words)


def test_shipped_models_are_what_the_verbs_take(here):
    assert data("classify", "A wonderful film.")["label"] == "positive"
    assert data("translate", "A man.")["translation"] == ch.load("translate-en-de").translate("A man.")
    assert len(data("fill", "The [MASK] sat on his throne.")["gaps"]) == 1


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["walk", "-"], "cannot be the text"),
        (["next", "-"], "cannot be the text"),
        (["tokenize", "-"], "cannot be the text"),
        (["tokenize", "a", "-"], "cannot be the second text"),
        (["explain", "saliency", "a b", "--second", "-"], "cannot be the second text"),
        (["explain", "saliency", "a b", "--set", "method="], "says nothing"),
        (["tokenize", "a", "--kind", "bpe"], "goes with --train"),
        (["tokenize", "a", "--vocab-size", "8000"], "goes with --train"),
        (["tokenize", "a", "--train", "b", "--save", "c"], "without a text"),
        (["models", "describe", "gpt2", "--gpus", "8"], "goes with --training"),
        (["study", "sentiment", "--train", "a", "--out", "b"], "goes with --fine-tune"),
        (["study", "sentiment", "--train", "a", "--set", "b=1"], "goes with --fine-tune"),
    ],
)
def test_what_would_mean_nothing_is_said(here, words, says):
    model = [] if words[0] in ("study", "models") else ["-m", "random-gpt2"]
    with pytest.raises(InputError, match=says):
        run(*words, *model)
    assert not list(here.iterdir())


@pytest.mark.parametrize("verb", ["classify", "tag", "answer", "translate", "summarize", "search", "fill", "embed"])
def test_help_teaches(verb):
    text = run(verb, "--help", columns=120).output
    assert f"clearhead {verb}" in text and "--json" in text and "Example" in text
