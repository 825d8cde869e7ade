"""Every logits processor and warper against those of transformers, on random scores; the rest by counting."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from transformers.generation import logits_process as hf

from clearhead.errors import InputError
from clearhead.generate import processors, warpers
from clearhead.generate.options import Options

VOCAB, ROWS = 23, 6
INF = torch.inf


def scores(kind: str, seed: int) -> Tensor:
    g = torch.Generator().manual_seed(seed)
    drawn = torch.randn(ROWS, VOCAB, generator=g) * 3
    if kind == "ties":
        drawn = drawn.round()
    if kind in ("forbidden", "one left"):
        hidden = torch.rand(ROWS, VOCAB, generator=g) < (0.6 if kind == "forbidden" else 2.0)
        hidden[torch.arange(ROWS), drawn.argmax(-1)] = False
        drawn = drawn.masked_fill(hidden, -INF)
    return drawn


def tokens(time: int, seed: int, size: int = VOCAB) -> Tensor:
    return torch.randint(0, size, (ROWS, time), generator=torch.Generator().manual_seed(seed))


kinds = pytest.mark.parametrize("kind", ["plain", "ties", "forbidden", "one left"])
seeds = pytest.mark.parametrize("seed", range(3))
BIASES = {(3,): 2.5, (4, 5): -1.5, (1, 2, 3): 4.0, (7,): -INF}
BAD = [[3], [4, 5], [1, 2, 1], [2]]
SOURCE = tokens(9, 77, 5)[:2]  # of two texts, with three rows each

PROCESSORS = [
    (processors.repetition_penalty(1.7), lambda: hf.RepetitionPenaltyLogitsProcessor(1.7)),
    (processors.repetition_penalty(0.6), lambda: hf.RepetitionPenaltyLogitsProcessor(0.6)),
    (
        processors.repetition_penalty(1 / 1.4, encoder_ids=SOURCE),
        lambda: hf.EncoderRepetitionPenaltyLogitsProcessor(1.4, SOURCE.repeat_interleave(3, 0)),
    ),
    (processors.no_repeat_ngram(1), lambda: hf.NoRepeatNGramLogitsProcessor(1)),
    (processors.no_repeat_ngram(2), lambda: hf.NoRepeatNGramLogitsProcessor(2)),
    (processors.no_repeat_ngram(3), lambda: hf.NoRepeatNGramLogitsProcessor(3)),
    (processors.no_repeat_ngram(20), lambda: hf.NoRepeatNGramLogitsProcessor(20)),
    (
        processors.no_repeat_ngram(2, encoder_ids=SOURCE),
        lambda: hf.EncoderNoRepeatNGramLogitsProcessor(2, SOURCE.repeat_interleave(3, 0)),
    ),
    (
        processors.sequence_bias((list(run), bias) for run, bias in BIASES.items()),
        lambda: hf.SequenceBiasLogitsProcessor(BIASES),
    ),
    (
        processors.sequence_bias((run, -INF) for run in BAD),
        lambda: hf.NoBadWordsLogitsProcessor(BAD, eos_token_id=torch.tensor([22])),
    ),
    (processors.suppress_tokens([4, 9]), lambda: hf.SuppressTokensLogitsProcessor([4, 9])),
    (processors.suppress_tokens([4, 9], lambda n: n == 8), lambda: hf.SuppressTokensAtBeginLogitsProcessor([4, 9], 8)),
    (processors.suppress_tokens([2], lambda n: n < 9), lambda: hf.MinLengthLogitsProcessor(9, [2])),
    (processors.suppress_tokens([2], lambda n: n < 8), lambda: hf.MinLengthLogitsProcessor(8, [2])),
    (processors.force_tokens_at(1, [6]), lambda: hf.ForcedBOSTokenLogitsProcessor(6)),
    (processors.force_tokens_at(8, [6, 2]), lambda: hf.ForcedEOSTokenLogitsProcessor(9, [6, 2])),
]  # fmt: skip


@kinds
@seeds
@pytest.mark.parametrize("time", [1, 8])
@pytest.mark.parametrize("which", range(len(PROCESSORS)))
def test_processors(which, time, seed, kind):
    ours, theirs = PROCESSORS[which]
    so_far, given = tokens(time, seed, 5), scores(kind, seed)
    kept = given.clone()
    assert torch.equal(ours(so_far, given), theirs()(so_far, given.clone()))
    assert torch.equal(given, kept)  # what came in is not written over


def test_the_processors_above_do_something():
    """Each of them, on tokens with many repetitions; else the comparison would say nothing."""
    for n, (ours, _) in enumerate(PROCESSORS):
        time = 1 if n == 14 else 8
        changed = [not torch.equal(ours(tokens(time, s, 5), scores("plain", s)), scores("plain", s)) for s in range(3)]
        assert any(changed) != (n in (6, 13)), n  # no run of 20 tokens in a text of 8, which is long enough too


@seeds
@kinds
def test_the_end_is_hastened(seed, kind):
    theirs = hf.ExponentialDecayLengthPenalty((3, 1.3), torch.tensor([2, 5]), input_ids_seq_length=4)
    ours = processors.exponential_decay_length_penalty(7, 1.3, [2, 5])
    for time in (6, 7, 8, 12):
        given = scores(kind, seed)
        want = theirs(tokens(time, seed), given.clone())
        want = torch.where(given.isfinite(), want, given)  # there, -inf + inf
        torch.testing.assert_close(ours(tokens(time, seed), given), want)


WARPERS = [
    (lambda keep: warpers.temperature(0.7), lambda keep: hf.TemperatureLogitsWarper(0.7)),
    *(
        (lambda keep, k=k: warpers.top_k(k, keep), lambda keep, k=k: hf.TopKLogitsWarper(k, min_tokens_to_keep=keep))
        for k in (1, 4, 100)
    ),
    *(
        (lambda keep, p=p: warpers.min_p(p, keep), lambda keep, p=p: hf.MinPLogitsWarper(p, min_tokens_to_keep=keep))
        for p in (0.05, 1.0)
    ),
    *(
        (lambda keep, p=p: warpers.top_p(p, keep), lambda keep, p=p: hf.TopPLogitsWarper(p, min_tokens_to_keep=keep))
        for p in (0.02, 0.5, 0.9)
    ),
    *(
        (
            lambda keep, p=p: warpers.typical_p(p, keep),
            lambda keep, p=p: hf.TypicalLogitsWarper(p, min_tokens_to_keep=keep),
        )
        for p in (0.05, 0.5, 0.95)
    ),
    *(
        (
            lambda keep, e=e: warpers.epsilon_cutoff(e, keep),
            lambda keep, e=e: hf.EpsilonLogitsWarper(e, min_tokens_to_keep=keep),
        )
        for e in (0.01, 0.3)
    ),
    *(
        (
            lambda keep, e=e: warpers.eta_cutoff(e, keep),
            lambda keep, e=e: hf.EtaLogitsWarper(e, min_tokens_to_keep=keep, device="cpu"),
        )
        for e in (0.01, 0.3)
    ),
]


@kinds
@seeds
@pytest.mark.parametrize("keep", [1, 3])
@pytest.mark.parametrize("which", range(len(WARPERS)))
def test_warpers(which, keep, seed, kind):
    """With ties it is open which of equals go; as many stay, and they are worth the same."""
    ours, theirs = (make(keep) for make in WARPERS[which])
    given = scores(kind, seed)
    got, want = ours(tokens(3, 0), given), theirs(tokens(3, 0), given.clone())
    assert torch.equal((got > -INF) | (given == -INF), (got == given / (0.7 if which == 0 else 1)) | (given == -INF))
    if kind == "ties" and which in (4, 5):  # min_p keeps all equals of the last it must keep
        for one, other in zip(got, want, strict=True):
            assert set(one.tolist()) == set(other.tolist())
    elif kind == "ties" and which > 5:
        torch.testing.assert_close(got.sort(-1).values, want.sort(-1).values)
    else:
        torch.testing.assert_close(got, want)
    assert (got > -INF).any(-1).all()


@pytest.mark.parametrize("which", range(len(WARPERS)))
def test_one_token_left(which):
    given = torch.full((1, VOCAB), -INF)
    given[0, 5] = -3.0
    got = WARPERS[which][0](1)(tokens(3, 0)[:1], given)
    assert got.isfinite().nonzero().tolist() == [[0, 5]]


@seeds
def test_what_was_written_counts_against_it(seed):
    """Presence and frequency, as the OpenAI API defines them: logit - times · frequency - (times > 0) · presence."""
    so_far, given = tokens(12, seed, 6), scores("plain", seed)
    got = processors.presence_and_frequency_penalty(0.7, 0.25, prompt_length=5)(so_far, given)
    for row in range(ROWS):
        new = so_far[row, 5:].tolist()
        for token in range(VOCAB):
            want = float(given[row, token]) - 0.25 * new.count(token) - 0.7 * (token in new)
            assert float(got[row, token]) == pytest.approx(want, abs=1e-5)


def test_padding_counts_for_nothing():
    """-1 before a text, or in a source: as if it were not there."""
    text, given = tokens(7, 1, 4), scores("plain", 1)
    left = torch.cat([torch.full((ROWS, 3), -1), text], 1)
    source = torch.cat([SOURCE, torch.full((2, 2), -1)], 1)
    for make in (
        lambda other: processors.repetition_penalty(1.5, other),
        *(lambda other, n=n: processors.no_repeat_ngram(n, other) for n in (1, 2, 3)),
    ):
        assert torch.equal(make(None)(left, given), make(None)(text, given))
        assert torch.equal(make(source)(text, given), make(SOURCE)(text, given))
    bad = processors.sequence_bias([([1, 2], -INF), ([3], 1.0)])
    assert torch.equal(bad(left, given), bad(text, given))


def test_processors_that_options_ask_for_come_in_the_published_order():
    """All at once, against the list that transformers makes: the order matters to the result."""
    options = Options(
        sequence_bias=[[[3], 2.0], [[1, 4], -3.0]], encoder_repetition_penalty=1.2, repetition_penalty=1.5,
        no_repeat_ngram_size=2, encoder_no_repeat_ngram_size=3, bad_words_ids=[[9], [1, 2], [22]], min_length=10,
        min_new_tokens=4, forced_eos_token_id=22, exponential_decay_length_penalty=(1, 1.4), suppress_tokens=[8],
        begin_suppress_tokens=[7],
    )  # fmt: skip
    prompt, new = 5, 9
    ours = processors.logits_processors(options, prompt, [22], new, SOURCE)
    rows = SOURCE.repeat_interleave(3, 0)
    theirs = hf.LogitsProcessorList(
        [
            hf.SequenceBiasLogitsProcessor({(3,): 2.0, (1, 4): -3.0}),
            hf.EncoderRepetitionPenaltyLogitsProcessor(1.2, rows),
            hf.RepetitionPenaltyLogitsProcessor(1.5),
            hf.NoRepeatNGramLogitsProcessor(2),
            hf.EncoderNoRepeatNGramLogitsProcessor(3, rows),
            hf.NoBadWordsLogitsProcessor([[9], [1, 2], [22]], eos_token_id=torch.tensor([22])),
            hf.MinLengthLogitsProcessor(10, [22]),
            hf.MinNewTokensLengthLogitsProcessor(prompt, 4, [22]),
            hf.ForcedEOSTokenLogitsProcessor(prompt + new, [22]),
            hf.ExponentialDecayLengthPenalty((1, 1.4), torch.tensor([22]), prompt),
            hf.SuppressTokensLogitsProcessor([8]),
            hf.SuppressTokensAtBeginLogitsProcessor([7], prompt),
        ]
    )
    for time in range(prompt, prompt + new):
        so_far, given = tokens(time, time, 6), scores("plain", time)
        got = given
        for process in ours:
            got = process(so_far, got)
        want = theirs(so_far, given.clone()).nan_to_num(nan=-INF, neginf=-INF)
        torch.testing.assert_close(got, want)


def test_begin_suppress_waits_for_a_forced_beginning():
    options = Options(begin_suppress_tokens=[7], forced_bos_token_id=5)
    forced, begin = processors.logits_processors(options, 1, [2], 5, None)
    given = torch.zeros(1, 9)
    assert begin(torch.zeros(1, 1).long(), given)[0, 7] == 0
    assert begin(torch.zeros(1, 2).long(), given)[0, 7] == -INF
    assert forced(torch.zeros(1, 1).long(), given).argmax() == 5


def test_a_beam_keeps_a_way_on_beside_the_ends():
    """As many tokens as can end a text, and one more."""
    for ends, kept in (([2], 2), ([2, 3, 4], 4), ([], 2)):
        (only,) = warpers.warpers(Options(top_k=1, num_beams=3), ends)
        assert int(only(tokens(1, 0), scores("plain", 0)).isfinite().sum(-1).max()) == kept
    assert warpers.warpers(Options(num_beams=3), [2]) == []


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"suppress_tokens": [99]}, "99, but this model writes 0 to 22"),
        ({"bad_words_ids": [[1, 99]]}, "99"),
        ({"sequence_bias": [[3, 4]]}, "sequence_bias"),
        ({"encoder_repetition_penalty": 1.5}, "this model has none"),
        ({"encoder_no_repeat_ngram_size": 2}, "this model has none"),
    ],
)
def test_processors_that_cannot_be(options, says):
    with pytest.raises(InputError, match=says):
        for process in processors.logits_processors(Options(**options), 2, [2], 5):
            process(torch.ones(1, 2).long(), torch.zeros(1, VOCAB))
