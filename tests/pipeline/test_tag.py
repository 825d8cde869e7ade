"""Tags against transformers' token classification with aggregation_strategy="first", and windows over long texts."""

import warnings

import pytest
import torch

from clearhead.errors import InputError
from clearhead.pipeline.windows import OVERLAP
from tests.pipeline.reference import TEXTS, reference
from tests.tiny import tiny_pipeline

TAGS = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC", "MISC", "E-PER"]
TRICKY = [*TEXTS, "Cat  sat\non the\tmat...", "[SEP] the cat § ☃ sat", "un-believ ably: don't (cat) sat, café CAFÉ"]


def tagger(name="bert", kind=None, **options):
    """One that does not give every word the same tag."""
    pipe = tiny_pipeline(name, "token-classification", kind, id2label=dict(enumerate(TAGS)), **options)
    ids = torch.tensor([pipe.tokenizer.encode(" ".join(TEXTS))[:30]])
    with torch.no_grad():
        pipe.model.head.output.weight.mul_(5)
        pipe.model.head.output.bias.sub_(pipe.model(ids).logits[0].mean(0))
    return pipe


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("name", "kind"),
    [("bert", "wordpiece"), ("roberta", "bpe"), ("xlnet", "unigram"), ("distilbert", "unigram"), ("gpt2", "bpe")],
)
def test_entities_are_those_of_transformers(name, kind, seed, tmp_path):
    pipe = tagger(name, kind, seed=seed)
    theirs = reference(pipe, "token-classification", tmp_path / "model", aggregation_strategy="first")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it knows no words
        expected = [theirs(text) for text in TRICKY]
    found = pipe.tag(TRICKY, batch_size=4)
    assert sum(map(len, found)) > 10
    for ours, their, text in zip(found, expected, TRICKY, strict=True):
        assert [(x.label, x.start, x.end) for x in ours] == [(x["entity_group"], x["start"], x["end"]) for x in their]
        assert [x.score for x in ours] == pytest.approx([x["score"] for x in their], abs=2e-6)
        assert all(text[x.start : x.end] == x.text for x in ours)
    assert pipe(TRICKY[0]) == pipe.tag(TRICKY[0])


def test_every_word_with_its_tag():
    pipe = tagger()
    words = pipe.tag("the cat, unbelievably sat", words=True)
    assert [word.text for word in words] == ["the", "cat", ",", "unbelievably", "sat"]
    ids = pipe.tokenizer("the cat, unbelievably sat", return_tensors="pt")
    best = pipe.model(**ids).logits[0].softmax(-1).max(-1)
    assert [word.label for word in words[:3]] == [TAGS[n] for n in best.indices[1:4]]
    assert words[3].score == pytest.approx(float(best.values[4].detach()), abs=1e-6)  # of its first piece


def test_a_long_text_is_read_in_windows():
    pipe = tagger(max_position_embeddings=32)  # 30 tokens of text, of which windows share 15
    text = "the cat sat on the mat and the dog ran to the sofa. " * 6
    words = pipe.tag(text, words=True)
    whole = pipe.tokenizer(text, add_special_tokens=False)
    assert " ".join(word.text for word in words) == " ".join(text.replace(".", " .").split())
    pieces = whole.offsets()
    assert min(OVERLAP, 15) == 15
    for start in (0, 15, 30):  # of the middle of a window, the tags are the window's own
        first, last = pieces[start][0], pieces[start + 29][1]
        inside = {word.start + first: word for word in pipe.tag(text[first:last], words=True)}
        middle = range(start + 8, start + 22)
        for word in words:
            if any(pieces[n][0] == word.start for n in middle):
                assert inside[word.start].label == word.label
                assert inside[word.start].score == pytest.approx(word.score, abs=1e-5)
    assert pipe.tag(text)[-1].end <= len(text)


def test_only_a_tagger_tags():
    with pytest.raises(InputError, match="loaded for masked-lm"):
        tiny_pipeline("bert").tag("a cat")
