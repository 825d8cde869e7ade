"""A text as a model reads it: what it is called with, what it reads beside, and what cannot be read is refused."""

import pytest
import torch

from clearhead.errors import InputError
from clearhead.explain.inference import call, eval_mode
from clearhead.models import family
from clearhead.pipeline import TextPipeline
from tests.tiny import TEXT, tiny_pipeline, tokenizer


def test_a_pair():
    pipe = tiny_pipeline("bert")
    reading = pipe.read("the cat sat", "a dog sat")
    encoded = pipe.tokenizer("the cat sat", "a dog sat", return_tensors="pt")
    assert torch.equal(reading.inputs["input_ids"], encoded["input_ids"])
    assert torch.equal(reading.inputs["token_type_ids"], encoded["token_type_ids"])
    assert [t.segment for t in reading.units] == [0] * 5 + [1] * 4
    words = [t.word for t in reading.units]
    assert [n for n, word in enumerate(words) if word is None] == [0, 4, 8]
    assert len({word for word in words if word is not None}) == 6  # "sat" is a word in each text
    assert "token_type_ids" not in tiny_pipeline("distilbert").read("the cat", "a dog").inputs
    assert "token_type_ids" in tiny_pipeline("xlnet").read("the cat", "a dog").inputs


def test_a_model_that_goes_on_reads_no_end():
    pipe = tiny_pipeline("gpt2", kind="wordpiece")
    assert [t.text for t in pipe.read("the cat").units] == ["[CLS]", "the", "cat"]


@pytest.mark.parametrize("name", ["t5", "bart", "transformer"])
def test_an_encoder_decoder_reads_what_it_wrote(name):
    pipe = tiny_pipeline(name)
    start = pipe.model.config.decoder_start_token_id
    reading = pipe.read("the cat", target="a dog")
    assert reading.inputs["decoder_input_ids"].tolist() == [[start, *pipe.tokenizer.encode("a dog")[:-1]]]
    assert [t.id for t in reading.outputs] == reading.inputs["decoder_input_ids"][0].tolist()
    assert [t.id for t in pipe.read("the cat", target="").target] == [start]
    own = pipe.read("the cat")
    written = pipe.model.generate(own.inputs["input_ids"])[0].tolist()
    ends = written[-1] == pipe.model.config.eos_token_id
    assert [t.id for t in own.target] == (written[:-1] if ends else written[: pipe.model.decoder.embed.max_length])


def test_a_classifier_with_a_decoder_reads_the_source_twice():
    pipe = tiny_pipeline("bart", "sequence-classification")
    reading = pipe.read("the cat")
    assert [t.id for t in reading.target][1:] == [t.id for t in reading.units][:-1]
    assert call(pipe, reading).logits.shape == (1, 3)
    with pytest.raises(InputError, match="give the target"):
        tiny_pipeline("marian", "features").read("the cat")


def test_too_long_says_how_long():
    with pytest.raises(InputError, match=r"62 tokens, but tiny bert reads at most 48"):
        tiny_pipeline("bert").read("cat " * 60)
    with pytest.raises(InputError, match=r"two texts together has 53 tokens.* at most 48"):
        tiny_pipeline("bert").read("cat " * 25, "cat " * 25)
    with pytest.raises(InputError, match=r"61 tokens, but tiny gpt2 reads at most 48"):
        tiny_pipeline("gpt2").read("cat " * 60)
    bart = tiny_pipeline("bart")
    with pytest.raises(InputError, match=r"The text has .* at most 48"):
        bart.read("cat " * 60)
    with pytest.raises(InputError, match=r"The target has .* at most 48"):
        bart.read("cat", target="cat " * 60)
    roberta = tiny_pipeline("roberta")  # positions begin after the padding token's
    room = roberta.model.stack.embed.max_length
    roberta.read("cat " * (room - 2))
    with pytest.raises(InputError, match=f"{room + 1} tokens, but tiny roberta reads at most {room}"):
        roberta.read("cat " * (room - 1))
    assert len(tiny_pipeline("t5").read("cat " * 60, target="").units) > 60  # no limit


def test_what_cannot_be_read():
    gpt, bert, t5 = tiny_pipeline("gpt2"), tiny_pipeline("bert"), tiny_pipeline("t5")
    for text in ("", "  \n", None):
        with pytest.raises(InputError, match="no text"):
            gpt.read(text)
    with pytest.raises(InputError, match="must be a string"):
        gpt.read(5)
    with pytest.raises(InputError, match="second text is empty"):
        bert.read("the cat", " ")
    with pytest.raises(InputError, match="leave the second out"):
        t5.read("the cat", "a dog")
    with pytest.raises(InputError, match="only an encoder–decoder has a target"):
        gpt.read("the cat", target="a dog")
    with pytest.raises(InputError, match="several texts at once"):
        tiny_pipeline("bert", "multiple-choice").read("the cat")
    unknown = TextPipeline(family("mbart").make(tiny_pipeline("mbart").model.config), tokenizer("unigram"))
    unknown.model.config.decoder_start_token_id = None
    with pytest.raises(InputError, match="which token starts"):
        unknown.read("the cat", target="a")


def test_a_model_in_training_is_seen_as_it_answers():
    pipe = tiny_pipeline("gpt2")
    reading = pipe.read(TEXT)
    with eval_mode(pipe.model):
        quiet = call(pipe, reading).logits
    pipe.model.train()
    with eval_mode(pipe.model):
        again = call(pipe, reading).logits
    assert torch.equal(quiet, again) and not again.requires_grad
    assert pipe.model.training and all(module.training for module in pipe.model.modules())
