"""The loop: rows that do not know of each other, draws with the right chances, what comes back, and when it stops."""

from __future__ import annotations

import random

import pytest
import torch

import clearhead as ch
from clearhead.errors import InputError
from clearhead.generate import PromptCache, generate, stream
from clearhead.generate.loop import draw_uniforms, sample
from clearhead.generate.stopping_criteria import cut_after, stop_at_strings
from clearhead.models.encoder_decoder import EncoderDecoderModel
from tests.generate.models import NAMES, VOCAB, afresh, ids, model, padded, until_end

ROWS = [ids(1, n, n)[0].tolist() for n in (4, 7, 2, 9)]
ENCODING = [name for name in NAMES if isinstance(model(name), EncoderDecoderModel)]


# ---- rows do not know of each other


@pytest.mark.parametrize("name", ["gpt2", "gptj", "gpt_neo", "roberta", "bart", "t5", "transformer"])
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"temperature": 1.3, "top_k": 20, "seed": [5, 6, 7, 8]},
        {"repetition_penalty": 1.4, "no_repeat_ngram_size": 2, "bad_words_ids": [[11], [28, 28], [4, 5]]},
        {"presence_penalty": 2.0, "frequency_penalty": 0.7, "min_new_tokens": 5},
        {"num_beams": 3, "repetition_penalty": 1.3, "length_penalty": 0.5},
    ],
    ids=["greedy", "sampled", "rules", "written", "beams"],
)
def test_a_batch_writes_what_its_rows_write_alone(name, side, options):
    ours = model(name)
    given, mask = padded(ROWS, side)
    start = 1 if name in ENCODING else given.shape[1]
    together = ours.generate(given, attention_mask=mask, max_new_tokens=12, **options)
    if name not in ENCODING:
        assert torch.equal(together[:, :start], given)  # the prompt comes back as it was given
    for n, row in enumerate(ROWS):
        own = {**options, "seed": [options["seed"][n]]} if "seed" in options else options
        alone = ours.generate(torch.tensor([row]), max_new_tokens=12, **own)[0]
        first = 1 if name in ENCODING else len(row)
        assert until_end(together[n, start:].tolist()) == until_end(alone[first:].tolist())


@pytest.mark.parametrize("name", ["bart", "t5"])
def test_rules_about_a_padded_source(name):
    ours = model(name)
    given, mask = padded(ROWS, "right")
    options = {"encoder_repetition_penalty": 3.0, "encoder_no_repeat_ngram_size": 1, "max_new_tokens": 8}
    together = ours.generate(given, attention_mask=mask, **options)
    for n, row in enumerate(ROWS):
        alone = ours.generate(torch.tensor([row]), **options)
        assert until_end(together[n].tolist()[1:]) == until_end(alone[0].tolist()[1:])
        assert not set(alone[0, 1:].tolist()) & set(row)


@pytest.mark.parametrize("name", ["gpt2", "bart"])
def test_seeds_reproduce_and_belong_to_rows(name):
    ours, source = model(name), ids(3, 6)
    options = {"max_new_tokens": 10, "temperature": 1.5, "eos_token_id": []}
    first = ours.generate(source, seed=3, **options)
    assert torch.equal(first, ours.generate(source, seed=3, **options))
    assert not torch.equal(first, ours.generate(source, seed=30, **options))
    assert torch.equal(first, ours.generate(source, seed=[3, 4, 5], **options))
    turned = ours.generate(source[[2, 0, 1]], seed=[5, 3, 4], **options)
    assert torch.equal(turned, first[[2, 0, 1]])
    several = ours.generate(source[:1], seed=3, num_return_sequences=3, **options)
    for n in range(3):
        assert torch.equal(several[n], ours.generate(source[:1], seed=3 + n, **options)[0])
    same = ours.generate(source[:1].repeat(2, 1), seed=[9, 9], **options)
    assert torch.equal(same[0], same[1])


# ---- chances


def expected(logits: torch.Tensor, options: dict[str, float]) -> torch.Tensor:
    """The distribution that is asked for, in double precision and plain Python."""
    p = (logits.double() / options.get("temperature", 1.0)).softmax(-1)
    order = sorted(range(len(p)), key=lambda n: -float(p[n]))
    kept = set(order)
    if "top_k" in options:
        kept = set(order[: int(options["top_k"])])
    if "top_p" in options:
        total, kept = 0.0, set()
        for n in order:
            kept.add(n)
            total += float(p[n])
            if total >= options["top_p"]:
                break
    if "min_p" in options:
        kept = {n for n in order if float(p[n]) >= options["min_p"] * float(p[order[0]])}
    if "typical_p" in options:
        entropy = -float((p * p.log()).sum())
        by_oddness = sorted(order, key=lambda n: abs(-float(p[n].log()) - entropy))
        total, kept = 0.0, set()
        for n in by_oddness:
            kept.add(n)
            total += float(p[n])
            if total >= options["typical_p"]:
                break
    out = torch.tensor([float(p[n]) if n in kept else 0.0 for n in range(len(p))], dtype=torch.double)
    return out / out.sum()


def chi_square(counts: torch.Tensor, p: torch.Tensor) -> None:
    """The counts fit the distribution: within 5 deviations of what the statistic is expected to be."""
    assert int(counts[p == 0].sum()) == 0
    n = int(counts.sum())
    large = p * n >= 5
    seen = torch.cat([counts[large].double(), counts[~large].sum()[None].double()])
    wanted = torch.cat([p[large] * n, (p[~large].sum() * n)[None]])
    if float(wanted[-1]) < 1:
        seen, wanted = seen[:-1], wanted[:-1]
    freedom = max(len(wanted) - 1, 1)
    statistic = float(((seen - wanted) ** 2 / wanted).sum())
    assert statistic < freedom + 5 * (2 * freedom) ** 0.5 + 5


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": 0.8},
        {"temperature": 1.7},
        {"top_k": 7},
        {"top_p": 0.7},
        {"min_p": 0.2},
        {"typical_p": 0.6},
        {"temperature": 1.5, "top_k": 9},
    ],
    ids=str,
)
@pytest.mark.parametrize("name", ["gpt2", "t5"])
def test_tokens_are_drawn_with_their_chances(name, options):
    ours, source = model(name), ids(1, 5, 2)
    text = [0] if name == "t5" else source[0].tolist()
    drawn = ours.generate(source, max_new_tokens=1, num_return_sequences=6000, seed=11, eos_token_id=[], **options)
    counts = drawn[:, -1].bincount(minlength=VOCAB)
    chi_square(counts, expected(afresh(ours, text, source[0].tolist()), options))


def test_later_tokens_are_drawn_anew():
    """The second token too has its chances, given the first: the uniforms drawn do not follow each other."""
    ours, source = model("gpt2"), ids(1, 5, 2)
    drawn = ours.generate(source, max_new_tokens=2, num_return_sequences=20000, seed=5, top_k=4, eos_token_id=[])
    first = int(drawn[:, 5].mode().values)
    given = drawn[drawn[:, 5] == first, 6].bincount(minlength=VOCAB)
    chi_square(given, expected(afresh(ours, [*source[0].tolist(), first]), {"top_k": 4}))


def test_what_has_no_chance_is_never_drawn():
    never = -torch.inf
    scores = torch.tensor([[never, 1.0, never, 2.0, never, 0.5, never]]).repeat(4, 1)
    edges = torch.tensor([[0.0], [1 - 2**-22], [2**-24], [0.5]])
    assert set(sample(scores, edges).tolist()) <= {1, 3, 5}
    assert sample(scores, edges)[:2].tolist() == [1, 5]
    only = torch.full((3, 50000), never)
    only[:, 49_000] = -7.0
    assert sample(only, torch.tensor([[0.0], [1 - 2**-22], [0.3]])).tolist() == [49_000] * 3
    g = torch.Generator().manual_seed(0)
    for size in (7, 1000, 50_000):
        scores = torch.randn(64, size, generator=g) * 4
        scores[torch.rand(64, size, generator=g) < 0.9] = never
        scores[:, size // 2] = 0.0
        for _ in range(20):
            found = sample(scores, torch.rand(64, 1, generator=g).clamp(max=1 - 2**-22))
            assert scores.gather(1, found[:, None]).isfinite().all()


def test_uniforms_drawn_beforehand():
    a, b = draw_uniforms(3, 5, [1, 2, 3]), draw_uniforms(2, 5, [2, 3])
    assert torch.equal(a[1:], b) and not torch.equal(a[0], a[1])
    assert torch.equal(draw_uniforms(1, 9, [7])[:, :5], draw_uniforms(1, 5, [7]))  # a longer text begins the same
    many = draw_uniforms(1, 200_000, [4])
    assert float(many.min()) >= 0 and float(many.max()) < 1


# ---- what comes back


@pytest.mark.parametrize("name", ["gpt2", "roberta", "gpt_neo", "bart", "t5", "transfo-xl"])
@pytest.mark.parametrize(
    "options", [{}, {"top_k": 9, "temperature": 2.0, "seed": 1}, {"repetition_penalty": 2.0}], ids=str
)
def test_log_probabilities_are_those_of_a_fresh_reading(name, options):
    ours, source = model(name), ids(3, 6, 5)
    out = generate(
        ours, source, max_new_tokens=9, return_dict_in_generate=True, output_scores=True, output_logits=True, **options
    )
    new = out.new_tokens.shape[1]
    assert out.log_probs.shape == (3, new)
    assert len(out.scores) == len(out.logits) == new
    assert all(step.shape == (3, VOCAB) for step in (*out.scores, *out.logits))
    for n, row in enumerate(out.sequences.tolist()):
        written = until_end(row[out.prompt_length :])
        assert out.finish_reason[n] == ("end" if written[-1] == 2 else "length")
        assert int(out.lengths[n]) == len(written)
        assert row[out.prompt_length + len(written) :] == [0] * (new - len(written))
        assert out.log_probs[n, len(written) :].abs().sum() == 0
        for k, token in enumerate(written):
            logits = afresh(ours, row[: out.prompt_length + k], source[n].tolist(), out.prompt_length)
            torch.testing.assert_close(out.logits[k][n], logits, rtol=1e-4, atol=1e-4)
            assert float(out.log_probs[n, k]) == pytest.approx(float(logits.log_softmax(-1)[token]), abs=1e-4)
            if "seed" in options:
                shaped = expected(logits, options)
                torch.testing.assert_close(out.scores[k][n].double().softmax(-1), shaped, rtol=1e-3, atol=1e-5)
            elif not options:
                assert torch.equal(out.scores[k], out.logits[k])
    plain = generate(ours, source, max_new_tokens=9, **options)
    assert torch.equal(plain, out.sequences)


def test_why_texts_end():
    ours, source = model("gpt2"), ids(3, 6, 5)
    free = ours.generate(source, max_new_tokens=8, eos_token_id=[])[:, 6:].tolist()
    ends = [free[0][2], free[1][4]]
    out = generate(ours, source, max_new_tokens=8, eos_token_id=ends, return_dict_in_generate=True)
    for row, whole, reason in zip(out.new_tokens.tolist(), free, out.finish_reason, strict=True):
        want = until_end(whole, tuple(ends))
        assert row[: len(want)] == want and set(row[len(want) :]) <= {0}
        assert reason == ("end" if want[-1] in ends else "length")
    assert "end" in out.finish_reason


class Letters:
    """A tokenizer of small pieces: token n is PIECES[n], as bytes."""

    PIECES = [b"", b"a", b"b", b"ab", b"c", b" ", b"\xc3", b"\xa9", b"stop", b"xSTx", b"S", b"T"]

    def decode(self, row: list[int], *, skip_special_tokens: bool = False) -> str:
        return b"".join(self.PIECES[n] if n < len(self.PIECES) else b"?" for n in row).decode(errors="replace")


@pytest.mark.parametrize(
    ("string", "pieces", "at"),
    [
        ("bc", [1, 3, 4, 2], 2),  # ab|c: begins in the middle of a token
        ("ST", [5, 9, 1], 1),  # inside a token
        ("ST", [10, 5, 10, 11, 1], 3),  # over two tokens
        ("é", [6, 6, 7, 1], 2),  # over two bytes
        (" a", [1, 5, 1, 5], 2),
        ("stop", [8], 0),
        ("aaaaaaaaaaaaaaaa", [1] * 20, 15),
        ("zz", [1, 2, 3], None),
    ],
)
def test_stop_strings(string, pieces, at):
    stop = stop_at_strings([string, "never this"], Letters(), prompt_length=2)
    prompt = [1, 4]
    hits = [
        k for k, token in enumerate(pieces)
        if bool(stop(torch.tensor([prompt + pieces[:k]]), torch.tensor([token]))[0])
    ]  # fmt: skip
    assert (hits[0] if hits else None) == at
    text = Letters().decode(pieces)
    assert cut_after(text, [string, "never"]) == (text[: text.index(string) + len(string)] if at is not None else text)


def test_a_string_in_the_prompt_does_not_stop():
    stop = stop_at_strings(["ab"], Letters(), prompt_length=2)
    assert not bool(stop(torch.tensor([[1, 2]]), torch.tensor([4]))[0])
    assert not bool(stop(torch.tensor([[4, 1]]), torch.tensor([2]))[0])  # half of it in the prompt


class Numbers:
    def decode(self, row: list[int], *, skip_special_tokens: bool = False) -> str:
        return "".join(f"<{n}>" for n in row if not (skip_special_tokens and n in (0, 1, 2)))


@pytest.mark.parametrize("beams", [1, 3])
def test_strings_and_ends_together(beams):
    """Padding is the end token here: a row that a string stopped must not seem to have ended by it."""
    ours, source = model("gpt2", pad_token_id=None), ids(3, 6, 5)
    free = ours.generate(source, max_new_tokens=8, eos_token_id=[], num_beams=beams)[:, 6:].tolist()
    string, end = f"{free[0][1]}><{free[0][2]}", free[1][4]
    options = {"max_new_tokens": 8, "eos_token_id": end, "stop_strings": string, "return_dict_in_generate": True}
    out = generate(ours, source, tokenizer=Numbers(), num_beams=beams, **options)
    if beams == 1:
        for row, whole, reason in zip(out.new_tokens.tolist(), free, out.finish_reason, strict=True):
            cut = next((k for k in range(8) if string in Numbers().decode(whole[: k + 1]) or whole[k] == end), 7)
            assert row[: cut + 1] == whole[: cut + 1]
            assert set(row[cut + 1 :]) <= {end}
            held = string in Numbers().decode(whole[: cut + 1])
            assert reason == ("end" if whole[cut] == end else "stop" if held else "length")
        assert out.finish_reason[0] == "stop"
    for row, length, reason in zip(out.new_tokens.tolist(), out.lengths.tolist(), out.finish_reason, strict=True):
        if reason == "stop":
            assert string in Numbers().decode(row[:length]) and string not in Numbers().decode(row[: length - 1])
    with pytest.raises(InputError, match="pass tokenizer="):
        generate(ours, source, stop_strings="a")


def test_rules_that_leave_nothing_say_so():
    ours = model("gpt2")
    for chance in ({}, {"seed": 1}):
        with pytest.raises(InputError, match="leave no token"):
            ours.generate(ids(1, 4), max_new_tokens=2, suppress_tokens=list(range(VOCAB)), **chance)
    with pytest.raises(InputError, match="leave no token"):  # every token has been written
        ours.generate(ids(1, 4), max_new_tokens=40, no_repeat_ngram_size=1, eos_token_id=[])


EVERYTHING = list(range(VOCAB))
WAYS = {
    "greedy": {},
    "sampled": {"seed": 1},
    "beams": {"num_beams": 3},
    "sampled beams": {"num_beams": 3, "do_sample": True, "seed": 1},
    "groups": {"num_beams": 4, "num_beam_groups": 2, "diversity_penalty": 1.0},
    "contrastive": {"penalty_alpha": 0.5, "top_k": 3},
    "forced": {"num_beams": 3, "force_words_ids": [[5]]},
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "rules", [{"suppress_tokens": EVERYTHING}, {"suppress_tokens": EVERYTHING[:-2], "no_repeat_ngram_size": 1}]
)
def test_no_token_left_is_said_by_every_strategy(way, rules):
    with pytest.raises(InputError, match="leave no token"):
        generate(model("gpt2"), ids(2, 4), max_new_tokens=5, **rules, **WAYS[way])


# ---- streams and traces


@pytest.mark.parametrize("name", ["gpt2", "t5", "transfo-xl"])
@pytest.mark.parametrize("options", [{}, {"top_k": 5, "seed": 2}, {"penalty_alpha": 0.5, "top_k": 4}], ids=str)
def test_a_stream_is_the_same_text(name, options):
    ours, source = model(name), ids(2, 6, 5)
    whole = ours.generate(source, max_new_tokens=9, **options)
    start = 1 if name == "t5" else 6
    pieces = torch.stack(list(stream(ours, source, max_new_tokens=9, **options)), 1)
    assert torch.equal(pieces, whole[:, start:])


def test_gradients_are_off_inside_and_as_they_were_outside():
    for token in stream(model("gpt2"), ids(1, 3), max_new_tokens=2, eos_token_id=[]):
        assert torch.is_grad_enabled() and not token.requires_grad


@pytest.mark.parametrize(
    ("name", "layer"), [("gpt2", "layers.1"), ("bart", "decoder.layers.1"), ("t5", "decoder.layers.0")]
)
@pytest.mark.parametrize("beams", [1, 2])
def test_a_trace_sees_every_step(name, layer, beams):
    ours, source = model(name), ids(2, 5, 8)
    plain = ours.generate(source, max_new_tokens=6, eos_token_id=[], num_beams=beams)
    names = [f"{layer}.output", f"{layer}.attention.weights"]
    names += [f"{layer}.cross_attention.weights"] if name != "gpt2" else []
    with ch.trace(ours, *names, every=True) as seen:
        watched = ours.generate(source, max_new_tokens=6, eos_token_id=[], num_beams=beams)
    assert torch.equal(plain, watched)
    start = 1 if name != "gpt2" else 5
    outputs, weights = seen.calls(names[0]), seen.calls(names[1])
    assert len(outputs) == len(weights) == 6
    assert [w.shape[-2:] for w in weights] == [(start, start)] + [(1, start + n) for n in range(1, 6)]
    assert [len(w) for w in weights] == [2] + [2 * beams] * 5
    if name != "gpt2":
        cross = seen.calls(names[2])
        assert [tuple(c.shape) for c in cross] == [(2, 2, 1, 5)] + [(2 * beams, 2, 1, 5)] * 5
        for step in cross:
            torch.testing.assert_close(step.sum(-1), torch.ones(step.shape[:-1]))


def test_a_trace_can_change_what_is_written():
    ours, source = model("gpt2"), ids(1, 5, 8)
    with ch.trace(ours, replace={"layers.1.output": lambda x: torch.zeros_like(x)}):
        same = ours.generate(source, max_new_tokens=4, eos_token_id=[])[0, 5:]
        always = int(ours(source).logits[0, -1].argmax())  # from nothing at all, at every step
    assert same.tolist() == [always] * 4
    assert ours.generate(source, max_new_tokens=4, eos_token_id=[])[0, 5:].tolist() != same.tolist()


def test_a_stream_that_is_left_early_breaks_nothing():
    ours, past, rng = model("gpt2"), PromptCache(), random.Random(0)
    text = ids(1, 8, 3)
    for _ in range(6):
        want = ours.generate(text, max_new_tokens=5, eos_token_id=[])
        taken = []
        running = stream(ours, text, past=past, max_new_tokens=5, eos_token_id=[])
        for token in running:
            taken.append(int(token))
            if len(taken) == rng.randint(1, 4):
                break
        running.close()
        assert taken == want[0, text.shape[1] :].tolist()[: len(taken)]
        assert torch.equal(ours.generate(text, past=past, max_new_tokens=5, eos_token_id=[]), want)
        text = torch.cat([text, torch.tensor([taken]), ids(1, 1, len(taken))], 1)[:, :30]


def test_an_interrupt_inside_the_model_breaks_nothing():
    """Half of the layers have read a token that the others have not: the next call must not believe it was read."""
    ours, past, text = model("gpt2"), PromptCache(), ids(1, 8, 3)
    want = ours.generate(text, max_new_tokens=6, eos_token_id=[])
    calls = 0

    def interrupt(x):
        nonlocal calls
        calls += 1
        if calls == 4:
            raise KeyboardInterrupt
        return x

    with pytest.raises(KeyboardInterrupt), ch.trace(ours, replace={"layers.0.output": interrupt}):
        ours.generate(text, past=past, max_new_tokens=6, eos_token_id=[])
    longer = want[:, :13]
    assert torch.equal(ours.generate(longer, past=past, max_new_tokens=1, eos_token_id=[]), want)
