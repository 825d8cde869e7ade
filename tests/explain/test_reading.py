"""A text as a model reads it: every token has its word, whatever the tokenizer, and what cannot be read is refused."""

import pytest
import torch

import clearhead as ch
from clearhead.errors import InputError
from clearhead.explain.reading import as_words, at_rest, call, read, readable, token_id, tokens_of, whole_words
from clearhead.models import family
from clearhead.pipeline import Pipeline
from clearhead.text import train_tokenizer
from tests.explain.samples import CORPUS, TEXT, small, tokenizer

SENTENCE = "The cats don't sit, 'unbelievably': naïve!"
WORDS = ["the", "cats", "don't", "sit", ",", "'", "unbelievably", "'", ":", "naïve", "!"]


def words_in(tok, text):
    tokens = tokens_of(tok, tok.encode(text), text)
    return [word.text.strip() for word in as_words(tok, tokens) if not word.special]


@pytest.mark.parametrize("kind", ["bpe", "wordpiece", "unigram"])
def test_words_are_the_same_for_every_tokenizer(kind):
    apart = " ".join(SENTENCE.lower())  # signs that no token joins
    tok = train_tokenizer(["the cats can don sit unbelievably naïve", apart] * 3, kind=kind, vocab_size=280)
    found = words_in(tok, SENTENCE.lower())
    assert found == [word if kind != "wordpiece" else word.replace("ï", "i") for word in WORDS]


@pytest.mark.parametrize("kind", ["bpe", "wordpiece", "unigram"])
def test_every_piece_has_one_place(kind):
    tok = tokenizer(kind)
    text = "unbelievably, dogs don't sit  on\n\nsofas 🤖🚀 我喜欢狗。"
    ids = tok.encode(text)
    tokens = tokens_of(tok, ids, text)
    assert [token.id for token in tokens] == ids
    numbers = [token.word for token in tokens if not token.special]
    assert numbers == sorted(numbers) and set(numbers) == set(range(len(set(numbers))))
    assert [n for group in whole_words(tokens) for n in group] == list(range(len(ids)))


def test_chinese_is_read_token_by_token():
    """No spaces tell words apart: a token is a word, and half characters belong to their character."""
    unigram = train_tokenizer(["我喜欢猫 我喜欢狗"] * 20, kind="unigram", vocab_size=30, show_progress=False)
    tokens = [t for t in tokens_of(unigram, unigram.encode("我喜欢猫"), "我喜欢猫") if not t.special]
    assert len({t.word for t in tokens if t.text.strip()}) == len([t for t in tokens if t.text.strip()])
    bpe = train_tokenizer(["abc"] * 9, kind="bpe", vocab_size=260, show_progress=False)
    assert len(bpe.encode("我猫")) == 6
    assert words_in(bpe, "我猫") == ["我", "猫"]
    assert words_in(tokenizer("wordpiece"), "我喜欢") == ["我", "喜", "欢"]


def test_a_space_goes_with_the_word_after_it():
    bpe = train_tokenizer(["abc"] * 9, kind="bpe", vocab_size=257, show_progress=False)
    assert [w.text for w in as_words(bpe, tokens_of(bpe, bpe.encode("ab  cd\nef"), "ab  cd\nef"))] == [
        "ab", " ", " cd", "\n", "ef",
    ]  # fmt: skip


def test_special_tokens():
    tok = tokenizer("wordpiece")
    ids = tok.encode("the [MASK] 🚀")
    tokens = tokens_of(tok, ids, "the [MASK] 🚀")
    assert [t.text for t in tokens] == ["[CLS]", "the", "[MASK]", "[UNK]", "[SEP]"]
    assert [t.special for t in tokens] == [True, False, False, False, True]  # a hidden or unknown word is a word
    gpt = ch.load("random-gpt2")
    end = gpt.tokenizer.eos_token
    tokens = tokens_of(gpt.tokenizer, gpt.tokenizer.encode(f"the{end}cat"), f"the{end}cat")
    assert [t.text for t in tokens if t.special] == [end]  # although it is also the unknown token


def test_ids_that_no_text_gives_are_words_each():
    tok = tokenizer("bpe")
    ids = tok.encode("unbelievably")
    assert [t.word for t in tokens_of(tok, [*ids[::-1], 5], "unbelievably")] == list(range(len(ids) + 1))
    assert [t.word for t in tokens_of(tok, [5], "")] == [0]


def test_spaces_are_spaces():
    tok = tokenizer("unigram")
    shown = readable(tok, tok.encode("the cat"))
    assert "".join(shown) == " the cat</s>"
    byte = train_tokenizer(CORPUS, kind="bpe", vocab_size=300, show_progress=False)
    assert "".join(readable(byte, byte.encode("the cat"))) == "the cat"


def test_a_pair():
    pipe = small("bert")
    reading = read(pipe, "the cat sat", "a dog sat")
    encoded = pipe.tokenizer("the cat sat", "a dog sat", return_tensors="pt")
    assert torch.equal(reading.inputs["input_ids"], encoded["input_ids"])
    assert torch.equal(reading.inputs["token_type_ids"], encoded["token_type_ids"])
    assert [t.segment for t in reading.tokens] == [0] * 5 + [1] * 4
    words = [t.word for t in reading.tokens]
    assert [n for n, word in enumerate(words) if word is None] == [0, 4, 8]
    assert len({word for word in words if word is not None}) == 6  # "sat" is a word in each text
    assert "token_type_ids" not in read(small("distilbert"), "the cat", "a dog").inputs
    assert "token_type_ids" in read(small("xlnet"), "the cat", "a dog").inputs


def test_a_model_that_goes_on_reads_no_end():
    pipe = small("gpt2", kind="wordpiece")
    assert [t.text for t in read(pipe, "the cat").tokens] == ["[CLS]", "the", "cat"]


@pytest.mark.parametrize("name", ["t5", "bart", "transformer"])
def test_an_encoder_decoder_reads_what_it_wrote(name):
    pipe = small(name)
    start = pipe.model.config.decoder_start_token_id
    reading = read(pipe, "the cat", target="a dog")
    assert reading.inputs["decoder_input_ids"].tolist() == [[start, *pipe.tokenizer.encode("a dog")[:-1]]]
    assert [t.id for t in reading.written] == reading.inputs["decoder_input_ids"][0].tolist()
    assert [t.id for t in read(pipe, "the cat", target="").target] == [start]
    own = read(pipe, "the cat")
    written = pipe.model.generate(own.inputs["input_ids"])[0].tolist()
    ends = written[-1] == pipe.model.config.eos_token_id
    assert [t.id for t in own.target] == (written[:-1] if ends else written[: pipe.model.decoder.embed.room])


def test_a_classifier_with_a_decoder_reads_the_source_twice():
    pipe = small("bart", "sequence-classification")
    reading = read(pipe, "the cat")
    assert [t.id for t in reading.target][1:] == [t.id for t in reading.tokens][:-1]
    assert call(pipe, reading).logits.shape == (1, 3)
    with pytest.raises(InputError, match="give the target"):
        read(small("marian", "features"), "the cat")


def test_too_long_says_how_long():
    with pytest.raises(InputError, match=r"62 tokens, but small bert reads at most 48"):
        read(small("bert"), "cat " * 60)
    with pytest.raises(InputError, match=r"two texts together has 53 tokens.* at most 48"):
        read(small("bert"), "cat " * 25, "cat " * 25)
    with pytest.raises(InputError, match=r"61 tokens, but small gpt2 reads at most 48"):
        read(small("gpt2"), "cat " * 60)
    bart = small("bart")
    with pytest.raises(InputError, match=r"The text has .* at most 48"):
        read(bart, "cat " * 60)
    with pytest.raises(InputError, match=r"The target has .* at most 48"):
        read(bart, "cat", target="cat " * 60)
    roberta = small("roberta")  # positions begin after the padding token's
    room = roberta.model.stack.embed.room
    read(roberta, "cat " * (room - 2))
    with pytest.raises(InputError, match=f"{room + 1} tokens, but small roberta reads at most {room}"):
        read(roberta, "cat " * (room - 1))
    assert len(read(small("t5"), "cat " * 60, target="").tokens) > 60  # no limit


def test_what_cannot_be_read():
    gpt, bert, t5 = small("gpt2"), small("bert"), small("t5")
    for text in ("", "  \n", None):
        with pytest.raises(InputError, match="no text"):
            read(gpt, text)
    with pytest.raises(InputError, match="must be a string"):
        read(gpt, 5)
    with pytest.raises(InputError, match="second text is empty"):
        read(bert, "the cat", " ")
    with pytest.raises(InputError, match="leave the second out"):
        read(t5, "the cat", "a dog")
    with pytest.raises(InputError, match="only an encoder–decoder has a target"):
        read(gpt, "the cat", target="a dog")
    with pytest.raises(InputError, match="several texts at once"):
        read(small("bert", "multiple-choice"), "the cat")
    unknown = Pipeline(family("mbart").make(small("mbart").model.config), tokenizer("unigram"))
    unknown.model.config.decoder_start_token_id = None
    with pytest.raises(InputError, match="which token starts"):
        read(unknown, "the cat", target="a")


def test_a_token_by_its_text_or_id():
    tok = tokenizer("bpe")
    assert token_id(tok, " cat", len(tok)) == tok.encode(" cat")[0]
    assert token_id(tok, 7, len(tok)) == 7
    pieces = tokenizer("wordpiece")
    inside = next(piece for piece in pieces.get_vocab() if piece.startswith("##"))
    assert token_id(pieces, inside, 90) == pieces.convert_tokens_to_ids(inside)
    with pytest.raises(InputError, match=r"is \d tokens \("):
        token_id(tok, " cat dog", len(tok))
    for wrong in (len(tok), -1):
        with pytest.raises(InputError, match="ids go from 0"):
            token_id(tok, wrong, len(tok))
    for wrong in ("", None, True, 1.5):
        with pytest.raises(InputError, match="by its text or its id"):
            token_id(tok, wrong, len(tok))


def test_a_model_in_training_is_seen_at_rest():
    pipe = small("gpt2")
    reading = read(pipe, TEXT)
    with at_rest(pipe.model):
        quiet = call(pipe, reading).logits
    pipe.model.train()
    with at_rest(pipe.model):
        again = call(pipe, reading).logits
    assert torch.equal(quiet, again) and not again.requires_grad
    assert pipe.model.training and all(module.training for module in pipe.model.modules())
