"""Recurrent encoder–decoders beside the papers' formulas, a state at a time: scores, alignments, losses, gradients; and
the two ways of running them beside each other: padded, traced, in parts, in half precision, through files and searches.
"""

import random

import pytest
import torch

import clearhead as ch
from clearhead import hub
from clearhead.errors import ConfigError, InputError
from clearhead.models import family
from clearhead.models.output import Output
from tests.recurrent.paper import Paper
from tests.tiny import shake, tiny_pipeline

FAMILY = family("rnn-seq2seq")
SOURCE = torch.tensor([[5, 3, 8, 2, 6], [7, 2, 9, 0, 0], [4, 0, 0, 0, 0]])
TARGET = torch.tensor([[1, 3, 5, 7], [1, 9, 4, 0], [1, 2, 0, 0]])
MASK = (SOURCE != 0).long()
KINDS = {
    "one vector": {"attention": None},
    "one vector, fed": {"attention": None, "feed_context": True},
    "one vector, read out": {"attention": None, "readout_size": 5},
    "additive": {"attention": "additive"},
    "dot": {"attention": "dot"},
    "general": {"attention": "general"},
    "concat": {"attention": "concat", "attention_size": 3},
    "additive, fed": {"attention": "additive", "input_feeding": True, "attention_size": 7},
    "general, fed": {"attention": "general", "input_feeding": True, "readout_size": 5},
    "local general": {"attention": "general", "attention_window": 1},
    "local concat, fed": {"attention": "concat", "attention_window": 2, "input_feeding": True},
    "one vector, fed back": {"attention": None, "input_feeding": True, "feed_context": True},
}
CASES = [(kind, seed) for n, kind in enumerate(KINDS) for seed in (n, n + 100)]


def drawn(kind, seed):
    """A small random config of this kind."""
    rng = random.Random(seed)
    width, both = rng.choice([4, 6]), rng.random() < 0.7
    layers = rng.randint(1, 2)
    copy = not both and rng.random() < 0.5
    config = {
        "cell": rng.choice(["lstm", "gru", "rnn", "lstm"]), "embedding_size": rng.choice([3, 5]), "hidden_size": width,
        "num_hidden_layers": layers, "encoder_layers": layers if copy else rng.randint(1, 2), "bidirectional": both,
        "bridge": "copy" if copy else "dense", "source_vocab_size": 10, "vocab_size": 11,
        "tie_source_embeddings": False,
    } | KINDS[kind]  # fmt: skip
    if not copy and config["attention"] != "dot" and rng.random() < 0.5:
        config["encoder_hidden_size"] = rng.choice([2, 5])
    if rng.random() < 0.5:
        config |= {"embedding_size": config.get("readout_size", width), "tie_word_embeddings": True}
    if rng.random() < 0.3:
        config |= {"source_vocab_size": 11, "tie_source_embeddings": True}
    return config


def make(kind, seed=0, **more):
    torch.manual_seed(seed)
    return shake(FAMILY.make(FAMILY.config(**drawn(kind, seed) | more)))


@pytest.fixture(scope="module")
def cases(tmp_path_factory):
    """Each model, and the papers' formulas over the file it was saved to; made once."""
    made = {}

    def case(kind, seed):
        if (kind, seed) not in made:
            model, folder = make(kind, seed), tmp_path_factory.mktemp("model") / "m"
            hub.save_model(model, folder)
            made[kind, seed] = model, Paper(folder), folder
        return made[kind, seed]

    return case


@pytest.mark.parametrize(("kind", "seed"), CASES)
def test_the_papers_numbers(cases, kind, seed):
    """Padded on either side, opened again from its file, and alone."""
    _, paper, folder = cases(kind, seed)
    model = ch.load(folder).model.double()
    for source, mask in ((SOURCE, MASK), (SOURCE.flip(1), MASK.flip(1))):
        out = model(source, mask, TARGET, output_attentions=True)
        for row, real in enumerate(mask.bool()):
            want, weights = paper.decode(source[row, real].tolist(), TARGET[row].tolist())
            torch.testing.assert_close(out.logits[row], want)
            if weights is None:
                assert out.cross_attentions is None
                continue
            torch.testing.assert_close(out.cross_attentions[0][row, 0][:, real], weights)
            assert not out.cross_attentions[0][row, 0][:, ~real].any()


@pytest.mark.parametrize("kind", KINDS)
def test_loss_and_gradients(cases, kind):
    model, paper, _ = cases(*next(case for case in CASES if case[0] == kind))
    labels = TARGET[:, 1:].masked_fill(TARGET[:, 1:] == 0, -100)
    model = model.double()
    loss = model(SOURCE, MASK, labels=labels).loss
    for tensor in paper.t.values():
        tensor.requires_grad_()
    terms = []
    for row, real in enumerate(MASK.bool()):
        words = [n for n in labels[row].tolist() if n != -100]
        scores, _ = paper.decode(SOURCE[row, real].tolist(), [1, *words[:-1]])
        terms += [-scores[n].log_softmax(-1)[word] for n, word in enumerate(words)]
    wanted = torch.stack(terms).mean()
    torch.testing.assert_close(loss.double(), wanted, atol=1e-6, rtol=1e-5)  # losses are made in fp32
    loss.backward()
    names = {p: name for name, p in model.named_parameters()}
    published = {e.ours[0]: e.theirs[0] for e in FAMILY.checkpoint_map(model.config, "seq2seq-lm").entries}
    theirs = [paper.t[published[name]] for name in names.values()]
    for (parameter, name), grad in zip(names.items(), torch.autograd.grad(wanted, theirs), strict=True):
        grad = grad.clone()
        if name.endswith("embed.tokens.weight"):
            grad[0] = 0  # the padding's row does not learn
            parameter.grad[0] = 0
        torch.testing.assert_close(parameter.grad, grad, atol=1e-6, rtol=1e-4, msg=name)
    model.float()


@pytest.mark.parametrize("kind", KINDS)
def test_a_word_at_a_time_as_all_at_once(kind):
    model = make(kind, 3)
    whole = model(SOURCE, MASK, TARGET).logits
    encoded, state = model.encode(SOURCE, MASK, None), model.start_state(9)
    given = {"encoder_outputs": encoded, "attention_mask": MASK}
    steps = [model(decoder_input_ids=w[:, None], past_key_values=state, **given).logits for w in TARGET.unbind(1)]
    torch.testing.assert_close(torch.cat(steps, 1), whole)
    assert state.length == 4
    # copies of a text share what its encoder said
    state = model.start_state(9)
    model(decoder_input_ids=TARGET[:, :1], past_key_values=state, **given)
    state.repeat(2)
    copy = state.copy()
    twice = model(decoder_input_ids=TARGET[:, 1:].repeat_interleave(2, 0), past_key_values=state, **given).logits
    torch.testing.assert_close(twice[::2], whole[:, 1:])
    torch.testing.assert_close(twice[1::2], whole[:, 1:])
    assert copy.length == 1
    copy.reorder(torch.tensor([1, 0, 2, 2, 5, 4]))
    moved = model(decoder_input_ids=TARGET[:, 1:].repeat_interleave(2, 0), past_key_values=copy, **given).logits
    torch.testing.assert_close(moved, twice)


@pytest.mark.parametrize("kind", KINDS)
def test_looking_changes_nothing(kind):
    model = make(kind, 4)
    want = model(SOURCE, MASK, TARGET).logits
    with ch.trace(model, "**") as seen:
        torch.testing.assert_close(model(SOURCE, MASK, TARGET).logits, want)
    assert set(seen) == set(ch.tap_points(model))
    assert seen["encoder.layers.0.hidden"].shape[:2] == SOURCE.shape
    assert seen["decoder.layers.0.hidden"].shape == (3, 4, model.config.hidden_size)
    if model.config.attention:
        weights, context = seen["decoder.attention.weights"], seen["decoder.attention.context"]
        assert weights.shape == seen["decoder.attention.scores"].shape == (3, 4, 5)
        memory = model.encode(SOURCE, MASK, None).last_hidden_state
        torch.testing.assert_close(weights @ memory, context)
        if model.config.attention_window is None:
            torch.testing.assert_close(weights.sum(-1), torch.ones(3, 4))


@pytest.mark.parametrize("kind", ["additive", "general", "local concat, fed"])
def test_a_replacement_acts_on_all_that_follows(kind):
    """With the weights turned to another word, step by step or at once, the context is that word's state."""
    model = make(kind, 5)
    plain = model(SOURCE, MASK, TARGET).logits

    def first_word(weights):
        there = torch.zeros_like(weights)
        there[..., 0] = 1
        return there

    with ch.trace(model, "decoder.attention.context", replace={"decoder.attention.weights": first_word}) as seen:
        changed = model(SOURCE, MASK, TARGET).logits
    memory = model.encode(SOURCE, MASK, None).last_hidden_state
    torch.testing.assert_close(seen["decoder.attention.context"], memory[:, :1].expand(-1, 4, -1))
    assert (changed - plain).abs().max() > 1e-3

    def without_second(hidden):  # (batch, time, width)
        hidden = hidden.clone()
        hidden[:, 1] = 0
        return hidden

    with ch.trace(model, replace={"decoder.layers.0.hidden": without_second}):
        changed = model(SOURCE, MASK, TARGET).logits
    torch.testing.assert_close(changed[:, 0], plain[:, 0])
    assert all((changed[:, t] - plain[:, t]).abs().max() > 1e-6 for t in (1, 2, 3))


@pytest.mark.parametrize("kind", [kind for kind in KINDS if KINDS[kind]["attention"]])
def test_a_source_of_padding_only_is_not_looked_at(kind):
    """Weights of zero and finite scores, beside a row that has words."""
    model = make(kind, 8)
    mask = MASK.clone()
    mask[1] = 0
    with ch.trace(model, "decoder.attention.weights") as seen:
        traced = model(SOURCE, mask, TARGET).logits
    weights = seen["decoder.attention.weights"]
    assert torch.equal(weights[1], torch.zeros_like(weights[1])) and traced.isfinite().all()
    torch.testing.assert_close(traced, model(SOURCE, mask, TARGET).logits)
    torch.testing.assert_close(traced[0], model(SOURCE[:1], MASK[:1], TARGET[:1]).logits[0])


@pytest.mark.parametrize("kind", ["one vector", "additive", "general", "local concat, fed"])
def test_padding_in_the_target_changes_nothing(kind):
    model = make(kind, 6)
    mask = (TARGET != 0).long()
    want = model(SOURCE, MASK, TARGET).logits
    right = model(SOURCE, MASK, TARGET, mask).logits
    left = model(SOURCE, MASK, TARGET.gather(1, mask.argsort(dim=1, stable=True)), mask.sort(1).values).logits
    for row, length in enumerate(mask.sum(1).tolist()):
        torch.testing.assert_close(right[row, :length], want[row, :length])
        torch.testing.assert_close(left[row, -length:], want[row, :length])


@pytest.mark.parametrize("kind", ["one vector, fed", "additive", "dot", "local concat, fed"])
def test_half_precision(kind):
    model = make(kind, 7)
    want = model(SOURCE, MASK, TARGET).logits
    with torch.autocast("cpu", dtype=torch.bfloat16):
        mixed = model(SOURCE, MASK, TARGET).logits
    half = model.bfloat16()(SOURCE, MASK, TARGET).logits
    scale = want.abs().max()
    assert (mixed.float() - want).abs().max() < 0.05 * scale and (half.float() - want).abs().max() < 0.05 * scale


@pytest.mark.parametrize("kind", ["one vector", "additive", "general", "local concat, fed"])
def test_dropout_can_be_repeated_and_checkpointing_learns_the_same(kind):
    model = make(kind, 8, dropout=0.4).train()
    losses, grads = [], []
    for checkpointing in (False, False, True):
        model.encoder.gradient_checkpointing = model.decoder.gradient_checkpointing = checkpointing
        torch.manual_seed(1)
        model.zero_grad()
        loss = model(SOURCE, MASK, labels=TARGET).loss
        loss.backward()
        losses.append(loss)
        grads.append([p.grad.clone() for p in model.parameters()])
    for other in (1, 2):
        torch.testing.assert_close(losses[0], losses[other])
        for a, b in zip(grads[0], grads[other], strict=True):
            torch.testing.assert_close(a, b)


# ---- writing


@pytest.fixture(scope="module")
def pipe():
    return tiny_pipeline("rnn-seq2seq", input_feeding=True, embedding_size=12, hidden_size=12)


@pytest.mark.parametrize("kind", ["one vector, fed", "additive", "general", "general, fed", "local concat, fed"])
def test_it_writes_as_its_scores_say(kind):
    model = make(kind, 9)
    want = torch.full((3, 1), 1)
    for _ in range(6):
        want = torch.cat([want, model(SOURCE, MASK, want).logits[:, -1:].argmax(-1)], 1)
    got = model.generate(SOURCE, attention_mask=MASK, max_new_tokens=6, eos_token_id=[])
    assert torch.equal(got, want)
    found = model.generate(
        SOURCE, attention_mask=MASK, max_new_tokens=5, num_beams=4, num_return_sequences=4, eos_token_id=[],
        length_penalty=0.0, return_dict_in_generate=True,
    )  # fmt: skip
    many = (SOURCE.repeat_interleave(4, 0), MASK.repeat_interleave(4, 0))
    log_probs = model(*many, found.sequences[:, :-1]).logits.log_softmax(-1)
    chosen = log_probs.gather(-1, found.sequences[:, 1:, None])[..., 0]
    torch.testing.assert_close(found.sequences_scores, chosen.sum(-1), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(found.log_probs, chosen, rtol=1e-4, atol=1e-4)


def test_every_option_writes_together_as_alone(pipe):
    texts = ["the cat sat on the mat", "a dog", "the mat and the cat"]
    drawn, contrastive = {"do_sample": True, "seed": 4, "top_p": 0.9}, {"penalty_alpha": 0.6, "top_k": 3}
    for options in ({}, {"num_beams": 3}, drawn, contrastive, {"repetition_penalty": 1.3, "no_repeat_ngram_size": 2}):
        together = pipe.generate(texts, max_new_tokens=6, **options)
        seeds = [{"seed": options["seed"] + n} if "seed" in options else {} for n in range(3)]
        alone = [pipe.generate(t, max_new_tokens=6, **options | s) for t, s in zip(texts, seeds, strict=True)]
        assert together == alone, options


def test_streams_stop_strings_and_log_probabilities(pipe):
    text = "the cat sat on the mat"
    (written,) = pipe.write(text, max_new_tokens=8, min_new_tokens=8)
    assert "".join(pipe.stream(text, max_new_tokens=8, min_new_tokens=8)) == written.text
    assert len(written.log_probs) == len(written.token_ids) == 8
    stop = next(piece for piece in pipe.stream(text, max_new_tokens=8, min_new_tokens=8) if piece.strip()).strip()
    (stopped,) = pipe.write(text, max_new_tokens=8, min_new_tokens=8, stop_strings=[stop])
    assert stopped.finish_reason == "stop" and len(stopped.token_ids) < 8
    assert pipe.translate(text, max_new_tokens=4) == pipe.generate(text, max_new_tokens=4)
    assert pipe.generate(text, choices=["the cat", "the mat"]) in ("the cat", "the mat")


def test_it_is_saved_with_its_tokenizer(pipe, tmp_path):
    pipe.save(tmp_path / "m")
    again = ch.load(tmp_path / "m")
    assert again.generate("the cat", max_new_tokens=5) == pipe.generate("the cat", max_new_tokens=5)
    assert again.model.config == pipe.model.config


# ---- what is refused


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"attention": "dotted"}, "attention"),
        ({"attention": None, "attention_window": 3}, "no attention"),
        ({"feed_context": True}, "feed_context"),
        ({"tie_word_embeddings": True, "embedding_size": 7, "hidden_size": 9}, "readout_size"),
        ({"tie_source_embeddings": True, "source_vocab_size": 3, "pad_token_id": 0}, "vocabularies differ"),
        ({"attention": "dot", "hidden_size": 8, "encoder_hidden_size": 3}, "one width"),
        ({"bridge": "copy"}, "dense"),
        ({"attention_window": 0}, "attention_window"),
    ],
)
def test_configs_that_cannot_be(options, match):
    with pytest.raises(ConfigError, match=match):
        FAMILY.make(FAMILY.config(**options))


def test_calls_that_cannot_be():
    model = make("additive")
    memory = model.encode(SOURCE, MASK, None)
    for wrong in (memory.last_hidden_state, Output(last_hidden_state=memory.last_hidden_state)):
        with pytest.raises(InputError, match=r"model\.encode"):
            model(decoder_input_ids=TARGET, encoder_outputs=wrong)
    with pytest.raises(InputError, match="DecoderState"):
        model(SOURCE, MASK, TARGET, past_key_values=ch.nn.KVCache(1))
    with pytest.raises(InputError, match="nothing to read"):
        model(SOURCE, MASK)
    with pytest.raises(InputError, match=r"cannot|back"):
        model.generate(SOURCE, attention_mask=MASK, prompt_lookup_num_tokens=2, max_new_tokens=3)
