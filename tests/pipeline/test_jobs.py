"""Search, translation, summaries, and calling a pipeline: the job of its head."""

import logging

import pytest
import torch
import torch.nn.functional as F

import clearhead as ch
from clearhead.errors import InputError
from tests.tiny import tiny_pipeline, tiny_translator

TEXTS = ["the cat sat on the mat", "a dog", "the sofa: 我喜欢猫", "the cat ran, unbelievably"]


def test_search_ranks_by_the_cosine_and_keeps_vectors():
    pipe = tiny_pipeline("bert", "features")
    vectors = pipe.embed(TEXTS)
    cosines = F.cosine_similarity(pipe.embed("a cat ran")[None], vectors)
    order = cosines.argsort(descending=True).tolist()
    found = pipe.search("a cat ran", TEXTS, top_k=3)
    assert [(hit.index, hit.text) for hit in found] == [(n, TEXTS[n]) for n in order[:3]]
    assert [hit.score for hit in found] == pytest.approx([float(cosines[n]) for n in order[:3]], abs=1e-6)
    kept = pipe.search("a cat ran", TEXTS, top_k=3, vectors=vectors)
    assert [hit.index for hit in kept] == order[:3]
    assert [hit.score for hit in kept] == pytest.approx([hit.score for hit in found], abs=1e-6)
    assert len(pipe.search("a cat ran", TEXTS)) == 4
    several = pipe.search(["a cat ran", "a dog"], TEXTS, top_k=2)
    assert [hit.index for hit in several[0]] == order[:2]
    assert several[1][0].index == 1


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"texts": "a cat"}, "list"),
        ({"texts": []}, "empty"),
        ({"texts": TEXTS, "vectors": torch.ones(3, 24)}, "shape"),
        ({"texts": TEXTS, "top_k": 0}, "top_k"),
    ],
)
def test_what_cannot_be_searched_says_why(arguments, says):
    with pytest.raises(InputError, match=says):
        tiny_pipeline("bert", "features").search("a cat", **arguments)


def test_a_translation_is_what_generate_writes():
    pipe = tiny_translator()
    options = {"max_new_tokens": 6}
    assert pipe.translate("the cat", **options) == pipe.generate("the cat", **options)
    texts = ["the cat sat", "the mat", "the cat sat on the mat the cat"]
    assert pipe.translate(texts, batch_size=2, **options) == [pipe.generate(text, **options) for text in texts]
    assert pipe.summarize(texts, num_beams=2, **options) == pipe.generate(texts, num_beams=2, **options)
    sampled = {"seed": 3, "temperature": 2.0} | options
    assert pipe.translate(texts, batch_size=2, **sampled) == pipe.generate(texts, **sampled)
    two = pipe.translate(texts, batch_size=2, num_return_sequences=2, **sampled)
    assert two == pipe.generate(texts, num_return_sequences=2, **sampled)
    beams = sampled | {"num_beams": 3, "num_return_sequences": 2}
    assert pipe.translate(texts, batch_size=2, **beams) == pipe.generate(texts, **beams)
    with pytest.raises(InputError, match="2 seeds for 3 texts"):
        pipe.translate(texts, **sampled | {"seed": [1, 2]})


def test_what_the_configuration_says_of_a_task_is_honoured():
    pipe = tiny_pipeline("t5")
    pipe.model.config.also_stored["task_specific_params"] = {
        "summarization": {"prefix": "cat: ", "max_length": 5, "min_length": 4, "num_beams": 2, "unknown": 1},
        "translation_en_to_de": {"prefix": "the dog "},
        "translation_en_to_fr": {"prefix": "a mat "},
    }
    written = pipe.generate("cat: the sofa", max_length=5, min_length=4, num_beams=2)
    assert pipe.summarize("the sofa") == pipe.summarize("cat: the sofa") == written
    short = {"max_length": 3, "num_beams": 2}  # a length asked for replaces the stored ones
    assert pipe.summarize("the sofa", max_length=3) == pipe.generate("cat: the sofa", **short)
    assert pipe.summarize("the sofa", max_new_tokens=2) == pipe.generate("cat: the sofa", **short)
    french = pipe.generate("a mat ran", max_new_tokens=5)
    assert pipe.translate("ran", src_lang="en", tgt_lang="fr", max_new_tokens=5) == french
    assert pipe.translate(["ran"], tgt_lang="fr", max_new_tokens=5) == [french]
    for wrong in ({}, {"tgt_lang": "it"}):
        with pytest.raises(InputError, match="en to de, en to fr"):
            pipe.translate("ran", **wrong)


def test_what_is_too_long_for_the_encoder_is_cut(caplog):
    pipe = tiny_pipeline("bart")
    with caplog.at_level(logging.WARNING, "clearhead"):
        written = pipe.summarize("the cat sat on the mat " * 30, max_new_tokens=5)
    assert "1 of 1 texts were cut to the 48 tokens" in caplog.text
    assert isinstance(written, str)
    with pytest.raises(InputError):
        pipe.generate("the cat sat on the mat " * 30, max_new_tokens=5)


@pytest.mark.parametrize("job", ["translate", "summarize"])
def test_only_an_encoder_decoder_translates_and_summarises(job):
    with pytest.raises(InputError, match=f"cannot {job}"):
        getattr(tiny_pipeline("gpt2"), job)("the cat")


def test_calling_a_pipeline_does_the_job_of_its_head():
    bert = tiny_pipeline("bert")
    assert bert("the [MASK] sat")[0][0].token
    texts = ["the [MASK] sat", "a [MASK]"]
    assert [gaps[0][0].token for gaps in bert(texts)] == [bert.fill(text)[0][0].token for text in texts]
    assert isinstance(tiny_pipeline("gpt2")("the cat", max_new_tokens=3), str)
    assert tiny_translator()(["the cat"], max_new_tokens=3) == tiny_translator().translate(
        ["the cat"], max_new_tokens=3
    )
    features = tiny_pipeline("bert", "features")
    assert torch.equal(features("the cat"), features.embed("the cat"))
    with pytest.raises(InputError, match="multiple-choice"):
        tiny_pipeline("bert", "multiple-choice")("the cat")


def test_a_pipeline_is_taken_where_a_model_is():
    pipe = tiny_pipeline("bert")
    assert ch.tap_points(pipe) == ch.tap_points(pipe.model)
    with ch.trace(pipe, "layers.0.output") as seen:
        pipe.fill("the [MASK] sat")
    assert seen["layers.0.output"].shape[-1] == 24
    with pytest.raises(InputError, match="not str"):
        ch.tap_points("bert-mini")


@pytest.mark.parametrize(
    ("task", "job"),
    [
        ("sequence-classification", lambda pipe: pipe.classify("the cat")),
        ("token-classification", lambda pipe: pipe.tag("the cat")),
        ("question-answering", lambda pipe: pipe.answer("the cat", "the mat")),
        ("masked-lm", lambda pipe: pipe.fill("the [MASK]")),
        ("masked-lm", lambda pipe: pipe.classify("the cat", labels=["a", "b"])),
        ("features", lambda pipe: pipe.embed("the cat")),
        ("features", lambda pipe: pipe.search("the cat", ["a dog", "a mat"])),
    ],
)
def test_a_model_of_nan_says_so(task, job):
    pipe = tiny_pipeline("bert", task)
    with torch.no_grad():
        for p in pipe.model.parameters():
            p.fill_(torch.nan)
    with pytest.raises(InputError, match="computes NaN"):
        job(pipe)


def test_an_end_of_nan_is_no_answer_and_a_question_alone_is_none():
    pipe = tiny_pipeline("bert", "question-answering")
    with torch.no_grad():
        pipe.model.head.output.bias[1] = torch.nan
    with pytest.raises(InputError, match="computes NaN"):
        pipe.answer("the cat", "the mat")
    with pytest.raises(InputError, match=r"pipe\(question, passage\)"):
        pipe("the cat")
