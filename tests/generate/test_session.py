"""What is read once is not read again: prompts kept between calls, windows that move on, tokens taken back."""

from __future__ import annotations

from contextlib import contextmanager

import pytest
import torch

from clearhead.errors import InputError
from clearhead.generate import PromptCache, generate, stream
from clearhead.generate.session import DecodingSession
from clearhead.models.encoder_decoder import EncoderDecoderModel
from clearhead.nn.kv_cache import BLOCK, KVCache
from tests.generate.models import ids, model, padded

# ---- prompts that begin the same


@contextmanager
def counting(ours):
    """How many positions the decoder reads."""
    read = [0]
    stack = ours.decoder if isinstance(ours, EncoderDecoderModel) else ours.stack
    hook = stack.embed.register_forward_hook(lambda module, args, out: read.__setitem__(0, read[0] + out.shape[1]))
    try:
        yield read
    finally:
        hook.remove()


CONTINUING = ["gpt2", "openai-gpt", "ctrl", "gptj", "roberta", "gpt_neo", "gpt3"]


@pytest.mark.parametrize("name", CONTINUING)
def test_a_prompt_cache_reads_only_what_is_new(name):
    ours, past = model(name), PromptCache()
    text = ids(1, 12, 5)
    edited = text.clone()
    edited[0, 7] = 3 + (int(edited[0, 7]) - 2) % 30
    longer = torch.cat([text, ids(1, 4, 6)], 1)
    cases = [  # (prompt, how many of its positions need to be read)
        (text, 12),
        (text, 1),
        (longer, 4),  # the four generated tokens that were read do not match
        (text[:, :6], 1),
        (edited[:, :11], 5),
        (edited, 1),
        (ids(1, 9, 77), 9),
        (text, 12),
    ]
    for n, (prompt, needed) in enumerate(cases):
        for options in ({}, {"top_k": 7, "seed": 1}):
            want = ours.generate(prompt, max_new_tokens=5, eos_token_id=[], **options)
            with counting(ours) as read:
                got = ours.generate(prompt, past=past, max_new_tokens=5, eos_token_id=[], **options)
            assert torch.equal(got, want), n
            assert read[0] <= (needed if not options else prompt.shape[1]) + 4
            if not options:
                assert read[0] == needed + 4, n
            assert past.tokens == want[0, :-1].tolist()
            if options:  # leave no trace for the next case
                ours.generate(prompt, past=past, max_new_tokens=5, eos_token_id=[])


def test_an_answer_that_was_written_need_not_be_read():
    ours, past = model("gpt2"), PromptCache()
    out = ours.generate(ids(1, 8), past=past, max_new_tokens=10, eos_token_id=[])
    more = torch.cat([out, ids(1, 3, 4)], 1)
    with counting(ours) as read:
        got = ours.generate(more, past=past, max_new_tokens=2, eos_token_id=[])
    assert read[0] == 1 + 3 + 1  # the last token of the answer, the three new ones, and the one written now
    assert torch.equal(got, ours.generate(more, max_new_tokens=2, eos_token_id=[]))


def test_calls_that_go_by_without_it():
    ours, other, past = model("gpt2"), model("gpt2", 5), PromptCache()
    text = ids(1, 8, 3)
    given, mask = padded([text[0].tolist(), text[0, :5].tolist()])
    ways = [
        (ours, text, {}),
        (other, text, {}),
        (ours, given, {"attention_mask": mask}),
        (ours, text, {"num_return_sequences": 3, "seed": 2}),
        (ours, text, {"num_beams": 3}),
        (ours, text, {}),
        (model("bart"), text, {}),
        (model("transfo-xl"), text, {}),
        (model("transfo-xl"), text, {}),
        (ours, text, {"prompt_lookup_num_tokens": 3}),
        (ours, text, {}),
    ]
    for who, prompt, options in ways:
        want = generate(who, prompt, max_new_tokens=6, eos_token_id=[], **options)
        assert torch.equal(generate(who, prompt, past=past, max_new_tokens=6, eos_token_id=[], **options), want)


def test_a_prompt_cache_serves_one_text_at_a_time():
    ours, past, text = model("gpt2"), PromptCache(), ids(1, 8, 3)
    first = stream(ours, text, past=past, max_new_tokens=6, eos_token_id=[])
    next(first)
    second = stream(ours, text, past=past, max_new_tokens=6, eos_token_id=[])
    got = [int(token) for token in second]
    assert got == ours.generate(text, max_new_tokens=6, eos_token_id=[])[0, 8:].tolist()
    with pytest.raises(InputError, match="one text at a time"):
        next(first)


# ---- windows


def long_model(name: str, window: int):
    sizes = {
        "gpt_neo": {"max_position_embeddings": 420, "window_size": window},
        "gpt3": {"n_positions": 420, "band": window},
    }
    return model(name, **sizes[name])


@pytest.mark.parametrize("name", ["gpt_neo", "gpt3"])
@pytest.mark.parametrize("window", [1, 7, 40])
@pytest.mark.parametrize("prompt", [3, 230])
def test_a_window_that_moves_on_changes_nothing(name, window, prompt):
    ours = long_model(name, window)
    given, mask = padded([ids(1, n, n)[0].tolist() for n in (prompt, prompt - 2)])
    new = 60 if prompt > 100 else 180
    out = ours.generate(given, attention_mask=mask, max_new_tokens=new, eos_token_id=[])
    whole = torch.cat([mask, torch.ones(2, new - 1).long()], 1)
    places = (whole.cumsum(-1) - 1).clamp(min=0)
    logits = ours(out[:, :-1], attention_mask=whole, position_ids=places).logits  # one pass, no cache at all
    chosen = out[:, prompt:]
    best = logits[:, prompt - 1 :].amax(-1)
    own = logits[:, prompt - 1 :].gather(-1, chosen[..., None])[..., 0]
    torch.testing.assert_close(own, best, rtol=1e-4, atol=1e-4)
    beams = ours.generate(given, attention_mask=mask, max_new_tokens=new // 2, eos_token_id=[], num_beams=2)
    kept, ours.start_state = ours.start_state, lambda capacity: KVCache(len(ours.stack.layers), capacity)
    try:  # every layer keeps everything
        assert torch.equal(ours.generate(given, attention_mask=mask, max_new_tokens=new, eos_token_id=[]), out)
        plain = ours.generate(given, attention_mask=mask, max_new_tokens=new // 2, eos_token_id=[], num_beams=2)
        assert torch.equal(plain, beams)
    finally:
        del ours.start_state
    assert ours.start_state == kept


@pytest.mark.parametrize("chunk", [1, 5, 64, 150])
def test_a_window_whatever_is_read_at_a_time(chunk):
    """The same states, with pieces of a text read one after another, and what is held stays small."""
    ours, window = long_model("gpt_neo", 9), 9
    text = ids(2, 400, 1)
    want = ours(text).logits
    cache = ours.start_state(400)
    got, sizes = [], []
    for start in range(0, 400, chunk):
        got.append(ours(text[:, start : start + chunk], past_key_values=cache).logits)
        sizes.append(cache.layers[1].held)
    torch.testing.assert_close(torch.cat(got, 1), want, rtol=1e-4, atol=1e-4)
    assert cache.length == 400 and cache.layers[0].held == 400
    assert cache.layers[1].length == 400 and cache.layers[1].dropped > 0
    assert max(sizes) <= window + 2 * BLOCK
    assert cache.layers[1].capacity <= -(-(window + 2 * BLOCK) // BLOCK) * BLOCK
    plain = KVCache(2, 400)
    ours(text, past_key_values=plain)
    assert cache.nbytes < plain.nbytes


def test_how_far_back_a_window_goes():
    ours, window, text = long_model("gpt_neo", 9), 9, ids(1, 300, 1)
    want = ours(text).logits
    cache = ours.start_state(300)
    for start in range(0, 300, 10):
        ours(text[:, start : start + 10], past_key_values=cache)
    layer = cache.layers[1]
    least = layer.dropped + window - 1  # the position after these still sees all that it must
    cache.crop(least)
    got = ours(text[:, least:], past_key_values=cache).logits
    torch.testing.assert_close(got, want[:, least:], rtol=1e-4, atol=1e-4)
    layer = cache.layers[1]
    with pytest.raises(InputError, match="it cannot go back"):
        cache.crop(layer.dropped + window - 2)
    with pytest.raises(InputError, match="it cannot go back"):
        cache.crop(0)


@pytest.mark.parametrize("name", ["gpt_neo", "gpt3"])
def test_a_prompt_cache_with_windows(name):
    """Where a local layer can go back, the text is continued; where not, it is read again."""
    ours, past, text = long_model(name, 7), PromptCache(), ids(1, 240, 8)
    for cut in (240, 236, 238, 120, 10, 240, 150, 239):
        prompt = text[:, :cut]
        want = ours.generate(prompt, max_new_tokens=6, eos_token_id=[])
        assert torch.equal(ours.generate(prompt, past=past, max_new_tokens=6, eos_token_id=[]), want)
    with counting(ours) as read:
        ours.generate(text, past=past, max_new_tokens=2, eos_token_id=[])
    assert read[0] == 2  # the last token of the prompt, and one of the two that were written


# ---- the session itself


def test_tokens_can_be_taken_back():
    ours, text = model("gpt2"), ids(2, 6, 1)
    session = DecodingSession(ours, text, None, 10)
    with torch.no_grad():
        session.prefill()
        first = session.append(ids(2, 4, 2))
        session.rollback(3)
        assert session.tokens.shape == (2, 7)
        again = session.append(ids(2, 4, 2)[:, 1:])
    torch.testing.assert_close(again, first[:, 1:], rtol=1e-4, atol=1e-5)


def test_the_capacity_grows_when_more_is_read_than_was_said():
    ours = model("t5")
    session = DecodingSession(ours, ids(1, 4), None, 2, decoder_start_token_id=0)
    with torch.no_grad():
        session.prefill()
        for token in range(3, 30):
            session.step(torch.tensor([token]))
    assert session.tokens[0].tolist() == [0, *range(3, 30)]


def test_padding_wherever_it_is():
    """Holes too: positions count real tokens only."""
    ours = model("gpt2")
    row = ids(1, 5, 3)[0].tolist()
    want = ours.generate(torch.tensor([row]), max_new_tokens=5, eos_token_id=[])[0, 5:]
    holes = torch.tensor([[0, row[0], row[1], 0, 9, row[2], row[3], row[4], 0]])
    mask = torch.tensor([[0, 1, 1, 0, 0, 1, 1, 1, 0]])
    out = ours.generate(holes, attention_mask=mask, max_new_tokens=5, eos_token_id=[])
    assert torch.equal(out[0, 9:], want) and torch.equal(out[:, :9], holes)
    with pytest.raises(InputError, match="padding only"):
        ours.generate(holes, attention_mask=torch.zeros_like(mask))
    with pytest.raises(InputError, match="shape of input_ids"):
        ours.generate(holes, attention_mask=mask[:, :5])
