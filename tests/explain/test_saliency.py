"""Saliency: the gradients are the true ones for every family, all at once as one by one, and what matters is found."""

import csv
import importlib
import io
import json

import numpy as np
import pytest
import torch

import clearhead as ch
from clearhead.errors import InputError
from clearhead.explain import saliency
from clearhead.nn.tracing import trace
from tests.explain.copying import copying_gpt2
from tests.tiny import CAUSAL, ENCODER_DECODER, MASKED, tiny_pipeline

MODULE = importlib.import_module("clearhead.explain.attribution")
SHORT = {
    **{name: {"text": "the cat sat", "target": " on the"} for name in CAUSAL},
    **{name: {"text": "the [MASK] sat on [MASK]"} for name in MASKED},
    **{name: {"text": "a cat", "target": "dog"} for name in ENCODER_DECODER},
}


def sides_of(name):
    return ["encoder.embed.tokens", "decoder.embed.tokens"] if name in ENCODER_DECODER else ["embed.tokens"]


def inputs_of(found):
    ids = torch.tensor([[token.id for token in found.tokens]])
    if not found.source:
        return {"input_ids": ids}
    return {"input_ids": ids[:, : found.source], "decoder_input_ids": ids[:, found.source :]}


def vectors(pipe, found, name):
    with torch.no_grad(), trace(pipe.model, *sides_of(name)) as seen:
        pipe.model(**inputs_of(found))
    return [seen[side].clone() for side in sides_of(name)]


def rows_of(found, name):
    """Where in the logits each output is scored."""
    return [o.position - found.source - (0 if name in MASKED else 1) for o in found.outputs]


def explained(pipe, found, name, changes, copies):
    """The logit of every output, (copies, outputs), where the token vectors are changed."""
    inputs = {key: ids.expand(copies, -1) for key, ids in inputs_of(found).items()}
    with torch.no_grad(), trace(pipe.model, replace=changes):
        logits = pipe.model(**inputs).logits
    return torch.stack(
        [logits[:, row, o.id] for row, o in zip(rows_of(found, name), found.outputs, strict=True)], dim=1
    )


@pytest.mark.parametrize("name", [*CAUSAL, *MASKED, *ENCODER_DECODER])
def test_gradients_are_those_of_finite_differences(name):
    pipe = tiny_pipeline(name)
    pipe.model.double()
    found = saliency(pipe, **SHORT[name])
    norms = saliency(pipe, **SHORT[name], method="gradient-norm")
    strength, products, signed = (np.full(found.scores.shape, np.nan) for _ in range(3))
    step, begin = 1e-5, 0
    for side, x in zip(sides_of(name), vectors(pipe, found, name), strict=True):
        width = x.shape[-1]
        for position in range(x.shape[1]):

            def nudged(tensor, position=position, width=width):
                tensor = tensor.clone()
                tensor[:width, position] += step * torch.eye(width, dtype=tensor.dtype)
                tensor[width:, position] -= step * torch.eye(width, dtype=tensor.dtype)
                return tensor

            logits = explained(pipe, found, name, {side: nudged}, 2 * width)
            gradient = ((logits[:width] - logits[width:]) / (2 * step)).T  # (outputs, width)
            strength[:, begin + position] = gradient.norm(dim=-1)
            products[:, begin + position] = (gradient * x[0, position]).norm(dim=-1)
            signed[:, begin + position] = (gradient * x[0, position]).sum(-1)
        begin += x.shape[1]
    late = np.isnan(found.scores)
    for n, output in enumerate(found.outputs):
        if name in MASKED:
            assert not late[n].any()
        else:
            assert late[n].nonzero()[0].tolist() == list(range(output.position, len(found.tokens)))
    assert np.abs(signed[late]).max(initial=0) < 1e-8  # what came too late has no effect indeed
    for ours, theirs in ((found.scores, products), (norms.scores, strength)):
        theirs = np.where(late, np.nan, theirs)
        np.testing.assert_allclose(ours, theirs / np.nansum(theirs, 1, keepdims=True), atol=1e-5)
        np.testing.assert_allclose(np.nansum(ours, 1), 1)
    np.testing.assert_allclose(found.contributions[~late], signed[~late], atol=1e-5 * np.abs(signed).max())
    assert norms.contributions is None


@pytest.mark.parametrize("name", ["gpt2", "gptj", "gpt_neo", "transfo-xl", "transformer", "t5", "bart"])
def test_all_at_once_is_prefix_by_prefix(name, monkeypatch):
    pipe = tiny_pipeline(name)
    asked = {"text": "the cat sat on the mat", "max_new_tokens": 6}
    found = saliency(pipe, **asked)
    assert len(found.outputs) > 1
    for n, output in enumerate(found.outputs):
        entered = []

        def enter(x, entered=entered):
            entered.append(x.detach().requires_grad_())
            return entered[-1]

        ids = inputs_of(found)
        last = list(ids)[-1]
        ids[last] = ids[last][:, : output.position - found.source]
        with trace(pipe.model, replace=dict.fromkeys(sides_of(name), enter)):
            logits = pipe.model(**ids).logits[0, -1]
        gradients = torch.autograd.grad(logits[output.id], entered)
        sizes = torch.cat([(g * x.detach())[0].norm(dim=-1) for g, x in zip(gradients, entered, strict=True)])
        np.testing.assert_allclose(found.scores[n, : len(sizes)], sizes / sizes.sum(), rtol=1e-4, atol=1e-7)
        assert np.isnan(found.scores[n, len(sizes) :]).all()
        assert output.probability == pytest.approx(float(logits.detach().softmax(-1)[output.id]), rel=1e-4)
        assert output.logit == pytest.approx(float(logits.detach()[output.id]), rel=1e-4, abs=1e-4)
    for rows in (1, 45):  # in as many batches as there are outputs, or a few
        monkeypatch.setattr(MODULE, "ROWS", rows)
        again = saliency(pipe, **asked)
        np.testing.assert_allclose(again.scores, found.scores, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("name", ["gpt2", "gptj", "bert", "distilbert", "albert", "bart", "transformer", "t5"])
def test_integrated_gradients_are_complete(name):
    pipe = tiny_pipeline(name)
    pipe.model.double()
    with torch.no_grad():
        for p in pipe.model.parameters():
            p.mul_(0.5)  # a gentler landscape: the axiom is about the limit of many steps
    found = saliency(pipe, **SHORT[name], method="integrated-gradients", steps=48)
    changes = {
        side: lambda x, n=n: n.expand_as(x) for side, n in zip(sides_of(name), neutrals(pipe, name), strict=True)
    }
    nothing = explained(pipe, found, name, changes, 1)[0].numpy()
    said = np.array([o.logit for o in found.outputs])
    assert np.abs(said - nothing).max() > 0.05
    np.testing.assert_allclose(np.nansum(found.contributions, 1), said - nothing, rtol=0.01, atol=2e-3)
    np.testing.assert_allclose(found.unexplained, said - nothing - np.nansum(found.contributions, 1), atol=1e-9)
    rough = saliency(pipe, **SHORT[name], method="integrated-gradients", steps=1)
    assert np.abs(rough.unexplained).max() > np.abs(found.unexplained).max()


def neutrals(pipe, name):
    tok = pipe.tokenizer
    token = next(n for n in (tok.mask_token_id, tok.unk_token_id, tok.pad_token_id, tok.eos_token_id) if n is not None)
    model = pipe.model
    embeds = [model.encoder.embed, model.decoder.embed] if name in ENCODER_DECODER else [model.stack.embed]
    return [(e.tokens(torch.tensor([token])) * e.scale).detach() for e in embeds]


@pytest.mark.parametrize("name", ["gpt2", "gptj", "roberta", "electra", "bart", "t5", "transformer"])
def test_occlusion_is_one_token_at_a_time(name, monkeypatch):
    pipe = tiny_pipeline(name)
    monkeypatch.setattr(MODULE, "ROWS", 40)  # several batches
    found = saliency(pipe, **SHORT[name], method="occlusion")
    begin = 0
    for side, neutral, x in zip(sides_of(name), neutrals(pipe, name), vectors(pipe, found, name), strict=True):
        for position in range(x.shape[1]):

            def hidden(tensor, position=position, neutral=neutral):
                tensor = tensor.clone()
                tensor[:, position] = neutral
                return tensor

            logits = explained(pipe, found, name, {side: hidden}, 1)[0]
            for n, output in enumerate(found.outputs):
                if not np.isnan(found.scores[n, begin + position]):
                    drop = output.logit - float(logits[n])
                    assert found.contributions[n, begin + position] == pytest.approx(drop, abs=2e-4)
        begin += x.shape[1]
    size = np.abs(found.contributions)
    np.testing.assert_allclose(found.scores, size / np.nansum(size, 1, keepdims=True), atol=1e-6)


@pytest.mark.parametrize("method", ["gradient-x-input", "gradient-norm", "integrated-gradients", "occlusion"])
def test_where_one_token_alone_matters(method):
    """Without attention and feed-forward nothing but the token itself can count."""
    pipe = tiny_pipeline("gpt2")
    with torch.no_grad():
        for block in pipe.model.stack.layers:
            for part in (block.attention.output, block.feedforward.down):
                part.weight.zero_()
                part.bias.zero_()
    found = saliency(pipe, "the cat sat on the mat", method=method, max_new_tokens=3)
    for n, output in enumerate(found.outputs):
        assert found.scores[n, output.position - 1] == pytest.approx(1, abs=1e-5)


def test_a_copied_word_comes_from_where_it_was_read():
    """An induction head set by hand: after the second "cat" comes what came after the first."""
    pipe = copying_gpt2()
    ids = pipe.tokenizer.encode("a cat sat on the cat", add_special_tokens=False)
    text = pipe.tokenizer.decode(ids)
    found = saliency(pipe, text, max_new_tokens=1, method="occlusion")
    words = [token.text for token in found.tokens]
    assert found.outputs[0].text == words[words.index("cat") + 1] == "sat"
    assert int(np.nanargmax(found.scores[0])) == words.index("sat")
    assert found.contributions[0, words.index("sat")] > 0


@pytest.mark.parametrize(
    ("name", "task"),
    [("electra", "sequence-classification"), ("bert", "sequence-classification"), ("gpt2", "sequence-classification"),
     ("xlm", "sequence-classification"), ("bart", "sequence-classification")],
)  # fmt: skip
def test_a_label(name, task):
    pipe = tiny_pipeline(name, task, id2label={0: "bad", 1: "good"})
    found = saliency(pipe, "the cat sat")
    ids = [token.id for token in found.tokens][: found.source or None]
    with torch.no_grad():
        logits = pipe.model(input_ids=torch.tensor([ids])).logits[0]
    (output,) = found.outputs
    assert output.id == int(logits.argmax())
    assert output.text == ["bad", "good"][output.id]
    assert output.position is None
    assert output.probability == pytest.approx(float(logits.softmax(-1)[output.id]), rel=1e-4)
    assert np.isfinite(found.scores).all()
    assert found.scores.sum() == pytest.approx(1)
    for label in ("good", 1):
        assert saliency(pipe, "the cat sat", target=label).outputs[0].id == 1
    # of two labels against each other, either way, only the sign differs
    one = saliency(pipe, "the cat sat", target="good", against="bad")
    other = saliency(pipe, "the cat sat", target="bad", against="good")
    np.testing.assert_allclose(one.contributions, -other.contributions, atol=1e-6)
    assert one.outputs[0].against == "bad"
    whole = saliency(pipe, "the cat sat", target="good", method="integrated-gradients", steps=64)
    assert np.abs(whole.unexplained).max() < 0.02
    assert saliency(pipe, "the cat sat", method="occlusion").scores.sum() == pytest.approx(1)
    with pytest.raises(InputError, match="Did you mean good"):
        saliency(pipe, "the cat sat", target="goood")


def test_a_label_of_a_pair_and_of_every_token():
    pipe = tiny_pipeline("bert", "sequence-classification")
    found = saliency(pipe, "the cat", pair="a dog")
    assert {token.segment for token in found.tokens} == {0, 1}
    pipe = tiny_pipeline("bert", "token-classification")
    found = saliency(pipe, "the cat sat")
    assert [o.position for o in found.outputs] == [n for n, t in enumerate(found.tokens) if not t.special]
    with torch.no_grad():
        logits = pipe.model(input_ids=torch.tensor([[t.id for t in found.tokens]])).logits[0]
    assert [o.id for o in found.outputs] == logits.argmax(-1)[1:-1].tolist()
    np.testing.assert_allclose(found.scores.sum(1), 1, rtol=1e-5)


def test_why_this_and_not_that():
    pipe = tiny_pipeline("gpt2")
    pipe.model.double()
    asked = {"text": "the cat sat on the", "target": " mat"}
    this = saliency(pipe, **asked)
    that = saliency(pipe, **asked, against=" cat")
    other = saliency(pipe, "the cat sat on the", target=" cat")
    count = min(len(this.tokens), len(other.tokens))
    assert len(this.outputs) == len(other.outputs) == 1
    known = np.s_[0, : count - 1]
    np.testing.assert_allclose(that.contributions[known], (this.contributions - other.contributions)[known], atol=1e-9)
    assert that.outputs[0].logit == pytest.approx(this.outputs[0].logit - other.outputs[0].logit)
    assert that.outputs[0].against == " cat"
    assert that.outputs[0].probability == this.outputs[0].probability


def test_which_tokens_are_explained():
    pipe = tiny_pipeline("gpt2")
    text = "the cat sat on the mat"
    length = len(pipe.tokenizer.encode(text))
    assert [o.position for o in saliency(pipe, text, max_new_tokens=0).outputs] == list(range(1, length))
    assert [o.position for o in saliency(pipe, text, max_new_tokens=3).outputs] == [length, length + 1, length + 2]
    found = saliency(pipe, text, max_new_tokens=3, outputs=[-1, 2])
    assert [o.position for o in found.outputs] == [2, length + 2]
    assert len(saliency(pipe, text).outputs) == 16
    written = pipe.write(text, max_new_tokens=3)[0]
    assert [o.id for o in saliency(pipe, text, max_new_tokens=3).outputs] == written.token_ids
    masked = tiny_pipeline("bert")
    guess = masked.fill("the [MASK] sat")[0][0]
    (output,) = saliency(masked, "the [MASK] sat").outputs
    assert (output.id, output.text) == (guess.token_id, guess.token)
    assert output.probability == pytest.approx(guess.probability, rel=1e-4)
    assert saliency(masked, "the [MASK] sat", target="cat").outputs[0].text == "cat"
    assert saliency(masked, "the cat sat", outputs=2).outputs[0].position == 2


def test_an_answer_is_explained_by_source_and_by_what_was_written():
    pipe = ch.load("translate-en-de")
    found = saliency(pipe, "A man is riding a horse.")
    assert "".join(o.text for o in found.outputs).strip() != ""
    assert found.source == len(pipe.tokenizer.encode("A man is riding a horse."))
    ends = [o.position for o in found.outputs]
    assert ends == list(range(found.source + 1, len(found.tokens)))
    assert [o.id for o in found.outputs] == [t.id for t in found.tokens[found.source + 1 :]]
    by_source = np.nansum(found.scores[:, : found.source], 1)
    assert (by_source > 0.05).all()
    assert (by_source < 1).all()


def test_the_model_is_left_as_it_was():
    pipe = tiny_pipeline("gpt2")
    pipe.model.train()
    one = saliency(pipe, "the cat sat", target=" on")
    assert pipe.model.training
    assert all(p.grad is None for p in pipe.model.parameters())
    pipe.model.eval()
    with torch.no_grad():
        two = saliency(pipe, "the cat sat", target=" on")
    np.testing.assert_array_equal(one.scores, two.scores)


def test_a_narrow_type():
    pipe = tiny_pipeline("gpt2")
    exact = saliency(pipe, "the cat sat", target=" on")
    pipe.model.to(torch.bfloat16)
    np.testing.assert_allclose(saliency(pipe, "the cat sat", target=" on").scores, exact.scores, atol=0.05)


def test_as_plain_data():
    found = saliency(tiny_pipeline("gpt2"), "the cat sat", target=" on the")
    data = json.loads(json.dumps(found.to_dict()))
    assert data["kind"] == "saliency"
    assert data["scores"][0][-1] is None
    rows = list(csv.DictReader(io.StringIO(found.to_csv())))
    assert sum(float(row["share"]) for row in rows if row["output"] == " on") == pytest.approx(1)
    assert len(rows) == np.isfinite(found.scores).sum()


def test_what_cannot_be_explained():
    gpt, bert, t5 = tiny_pipeline("gpt2"), tiny_pipeline("bert"), tiny_pipeline("t5")
    for pipe, text, asked, words in (
        (gpt, "the", {"method": "gradient"}, "no method"),
        (gpt, "the", {"max_new_tokens": 0}, "no token to explain"),
        (gpt, "the cat", {"outputs": 0}, "Nothing comes before"),
        (gpt, "the cat", {"outputs": 99}, "no position 99"),
        (gpt, "the cat", {"target": 3}, "is a text"),
        (gpt, "the cat", {"max_new_tokens": -1}, "max_new_tokens"),
        (gpt, "the cat", {"against": [" cat", " dog"], "max_new_tokens": 3}, "2 entries for 3"),
        (gpt, "the cat", {"against": 9999, "max_new_tokens": 3}, "no token 9999"),
        (gpt, "the cat " * 40, {}, "at most"),
        (gpt, " ", {}, "no text"),
        (bert, "the cat", {}, r"no hidden word.*\[MASK\]"),
        (bert, "the [MASK]", {"max_new_tokens": 3}, "does not write"),
        (bert, "the [MASK]", {"steps": 0}, "steps"),
        (t5, "the cat", {"max_new_tokens": 0}, "nothing is written"),
        (tiny_pipeline("bert", "question-answering"), "the cat", {}, "does not explain"),
        (tiny_pipeline("bert", "sequence-classification"), "the cat", {"outputs": 1}, "leave out which tokens"),
    ):
        with pytest.raises(InputError, match=words):
            saliency(pipe, text, **asked)


def test_rounded_weights_have_no_gradients():
    pipe = ch.load("random-gpt2", quantize="int8")
    with pytest.raises(InputError, match="occlusion"):
        saliency(pipe, "the robot")
    assert saliency(pipe, "the robot", method="occlusion", max_new_tokens=1).scores.shape[0] == 1
