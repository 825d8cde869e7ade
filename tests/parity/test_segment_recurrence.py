"""What only XLNet and Transformer-XL have: memories, a stream of targets, distances in both directions."""

import random

import pytest
import torch
import transformers

from clearhead import hub
from clearhead.errors import CheckpointError, ConfigError, InputError
from clearhead.models import family
from clearhead.nn import trace
from tests.tiny import shake

from .family_transfo_xl import REFERENCE as TRANSFO_XL
from .family_transfo_xl import draw_transfo_xl
from .family_xlnet import draw_xlnet
from .harness import close

SMALL = {"vocab_size": 40, "d_model": 12, "n_layer": 2, "n_head": 3, "d_inner": 20, "pad_token_id": 0}


def xlnet(folder, cls=transformers.XLNetLMHeadModel, **options):
    theirs = shake(cls(transformers.XLNetConfig(**{**SMALL, **options})))
    theirs.save_pretrained(folder)
    return theirs, hub.load_model(folder)


def ids(batch=2, time=7):
    return torch.randint(3, 31, (batch, time))


def same(ours, theirs, key="logits"):
    close(ours[key], theirs[key])
    assert (ours.mems is None) == (theirs.mems is None)
    for a, b in zip(ours.mems or (), theirs.mems or (), strict=True):
        close(a, b)


def targets(batch=2, time=7, count=3):
    """A factorization order per text, and `count` targets at its end, so that each sees something."""
    order = torch.stack([torch.randperm(time) for _ in range(batch)])
    rank = order.argsort(-1)
    hidden = (rank[:, :, None] <= rank[:, None, :]).float()  # i must not see j that comes later, nor itself
    places = torch.nn.functional.one_hot(order[:, -count:], time).float()
    return {"perm_mask": hidden, "target_mapping": places}


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("attn_type", ["bi", "uni"])
def test_xlnet_memory_and_targets(tmp_path, seed, attn_type):
    torch.manual_seed(seed)
    options = draw_xlnet(random.Random(f"recurrent {seed}"), "permutation-lm")
    theirs, ours = xlnet(tmp_path, **{**options, "attn_type": attn_type})
    a = b = None
    with torch.no_grad():
        for _ in range(3):
            text, mems = ids(), (b.mems if b is not None else None)
            given = {"token_type_ids": torch.randint(0, 4, (2, 7)), "use_mems": True}
            a = theirs(text, mems=None if a is None else a.mems, **given)
            b = ours(text, mems=mems, **given)
            same(b, a)
            if attn_type == "bi":  # the reference cannot mask a batch that reads one way
                asked = {**given, **targets(), "labels": ids(time=3)}
                want, got = theirs(text, mems=a.mems, **asked), ours(text, mems=b.mems, **asked)
                same(got, want)
                close(got.loss, want.loss)


def test_xlnet_reading_one_way_with_masks_one_by_one(tmp_path):
    theirs, ours = xlnet(tmp_path, attn_type="uni", same_length=True)
    text, hidden = ids(1), torch.tensor([[1.0, 1, 0, 0, 0, 0, 1]])
    with torch.no_grad():
        mems = theirs(ids(1, 5)).mems
        for given in ({"input_mask": hidden}, {"attention_mask": 1 - hidden}, {**targets(1), "input_mask": hidden}):
            same(ours(text, mems=mems, **given), theirs(text, mems=mems, **given))


@pytest.mark.parametrize("options", [{}, {"attn_type": "uni"}, {"clamp_len": 2}])
def test_xlnet_on_text_in_both_directions(tmp_path, options):
    theirs, ours = xlnet(tmp_path, bi_data=True, **options)
    text = ids(4)
    with torch.no_grad():
        want = theirs(text)
        same(ours(text), want)
        same(ours(text, mems=want.mems), theirs(text, mems=want.mems))
    with pytest.raises(InputError, match="bi_data"):
        ours(ids(3))


def test_xlnet_gradients_through_both_streams(tmp_path):
    theirs, ours = xlnet(tmp_path)
    text, given = ids(), {**targets(), "token_type_ids": torch.randint(0, 2, (2, 7)), "labels": ids(time=3)}
    theirs(text, **given).loss.backward()
    ours(text, **given).loss.backward()
    map_ = ours.family.checkpoint_map(ours.config, ours.task)
    grads = {name: p.grad for name, p in theirs.named_parameters() if p.grad is not None}
    for entry in map_.entries:
        if entry.tied_to is None:
            (grad,) = entry.to_theirs([ours.get_parameter(entry.ours[0]).grad])
            close(grad, grads.pop(map_.published_name(entry.theirs[0], entry, True)), tolerance=2e-5)
    assert not grads


def test_xlnet_shows_both_streams(tmp_path):
    theirs, ours = xlnet(tmp_path)
    text, given = ids(), {**targets(), "output_hidden_states": True, "output_attentions": True}
    with torch.no_grad():
        want, got = theirs(text, **given), ours(text, **given)
        with trace(ours, "layers.1.attention.*", "layers.*.output", every=True) as seen:
            ours(text, **targets())
    for a, b in zip(got.hidden_states, want.hidden_states, strict=True):
        close(a, b)
    both = [stream for layer in want.attentions for stream in layer]
    placed = given["target_mapping"].sum(1).bool()  # rows without a target are not read
    for n, (a, b) in enumerate(zip(got.attentions, both, strict=True)):
        rows = placed if n % 2 else torch.ones_like(placed)
        close(a.transpose(1, 2)[rows], b.transpose(1, 2)[rows])
    assert [len(seen.calls(f"layers.1.attention.{name}")) for name in ("query", "key", "output")] == [2, 1, 2]


def test_a_target_that_sees_nothing_gets_zeros(tmp_path):
    _, ours = xlnet(tmp_path)
    mapping = torch.zeros(1, 1, 7)
    mapping[0, 0, 2] = 1
    blind = torch.ones(1, 7, 7)
    with torch.no_grad(), trace(ours, "layers.0.attention.heads") as seen:
        one = ours(ids(1), perm_mask=blind, target_mapping=mapping).logits
        assert not seen["layers.0.attention.heads"][:, :, 2].any()
        close(ours(ids(1), perm_mask=blind, target_mapping=mapping).logits, one)  # whatever the text is


def test_xlnet_left_padding_is_not_there(tmp_path):
    _, ours = xlnet(tmp_path, transformers.XLNetForSequenceClassification)
    text = ids(1, 5)
    padded = torch.cat([torch.zeros(1, 3, dtype=torch.long), text], 1)
    mask = torch.tensor([[0, 0, 0, 1, 1, 1, 1, 1]])
    with torch.no_grad():
        close(ours(padded, attention_mask=mask).logits, ours(text).logits)


def test_xlnet_does_not_write(tmp_path):
    _, ours = xlnet(tmp_path, attn_type="uni")
    with pytest.raises(InputError, match="cannot write text"):
        ours.generate(ids(), max_new_tokens=2)


@pytest.mark.parametrize("seed", range(6))
def test_transformer_xl_memory(tmp_path, seed):
    torch.manual_seed(seed)
    theirs = TRANSFO_XL.build(draw_transfo_xl(random.Random(f"memory {seed}"), "causal-lm"), "causal-lm")
    TRANSFO_XL.save(theirs, tmp_path)
    ours = hub.load_model(tmp_path)
    a = b = None
    with torch.no_grad():
        for time in (7, 2, 1, 9):
            text = ids(time=time)
            a = theirs(text, mems=None if a is None else a.mems)
            b = ours(text, mems=None if b is None else b.mems)
            close(b.logits, a.logits)
            for x, y in zip(b.mems or (), a.mems if ours.config.mem_len else (), strict=True):
                close(x, y)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("beams", [1, 3])
def test_transformer_xl_writes(tmp_path, seed, beams):
    torch.manual_seed(seed)
    config = draw_transfo_xl(random.Random(f"writes {seed}"), "causal-lm")
    theirs = TRANSFO_XL.build(config, "causal-lm")
    TRANSFO_XL.save(theirs, tmp_path)
    ours = hub.load_model(tmp_path)
    prompt = ids()

    def scores(text):
        """Log-probabilities of each token after the prompt, with the prompt and then one token at a time."""
        mems, out = None, []
        for at in range(prompt.shape[1], text.shape[1] + 1):
            whole = not config["mem_len"]  # without a memory all is read anew
            seen = theirs(text[:, :at] if whole or mems is None else text[:, at - 1 : at], mems=mems)
            mems = None if whole else seen.mems
            out.append(seen.logits[:, -1])
        return out

    with torch.no_grad():
        greedy = prompt
        for _ in range(5):
            greedy = torch.cat([greedy, scores(greedy)[-1].argmax(-1, keepdim=True)], 1)
        written = ours.generate(prompt, max_new_tokens=5, num_beams=beams, eos_token_id=[])
        if beams == 1:
            assert torch.equal(written, greedy)
        else:

            def likelihood(text):
                chosen = zip(scores(text[:, :-1]), text[:, 7:].unbind(1), strict=True)
                return sum(s.gather(1, token[:, None])[:, 0] for s, token in chosen)

            assert (likelihood(written) >= likelihood(greedy) - 1e-4).all()


def test_a_memory_refuses_padding(tmp_path):
    ours = family("transfo-xl").make(small_xl())
    with pytest.raises(InputError, match="padding"):
        ours.generate(ids(), attention_mask=torch.tensor([[1] * 7, [0] + [1] * 6]), max_new_tokens=2)
    with pytest.raises(InputError, match="count up by one"):
        ours(ids(), position_ids=torch.zeros(2, 7, dtype=torch.long))
    with pytest.raises(InputError, match="mems"):
        ours(ids(), mems=[torch.zeros(3, 1, 12)] * 2)
    with pytest.raises(InputError, match="labels"):
        ours(ids(), labels=ids() + 100)
    with pytest.raises(InputError, match="no target stream"):
        ours(ids(), target_mapping=torch.zeros(2, 1, 7))
    with pytest.raises(InputError, match="segments"):
        ours(ids(), token_type_ids=torch.zeros(2, 7, dtype=torch.long))


def small_xl(**options):
    published = {**SMALL, "d_embed": 12, "d_head": 4, "cutoffs": [9, 20], "div_val": 2, "mem_len": 5, **options}
    return family("transfo-xl").config.from_dict(published)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"attn_type": 2}, "attn_type"),
        ({"sample_softmax": 100}, "sample_softmax"),
        ({"ext_len": 4}, "ext_len"),
        ({"mem_len": 0}, "same_length"),
        ({"adaptive": False}, "adaptive"),
        ({"tie_projs": [True] * 9}, "tie_projs"),
        ({"cutoffs": [20, 9]}, "cutoffs"),
        ({"cutoffs": [9, 40]}, "cutoffs"),
        ({"div_val": 30}, "divided"),
        ({"d_model": 13}, "odd"),
        ({"tie_weight": False, "tie_word_embeddings": True}, "twice"),
    ],
)
def test_transformer_xl_refuses(options, says):
    with pytest.raises(ConfigError, match=says):
        family("transfo-xl").make(small_xl(**options), device="meta")


def test_older_spellings():
    config = small_xl(tie_weight=False, n_token=40)
    assert not config.tie_word_embeddings


@pytest.mark.parametrize("options", [{"untie_r": False}, {"d_head": 5}, {"summary_type": "attn"}, {"n_head": 5}])
def test_xlnet_refuses(options):
    with pytest.raises(ConfigError):
        family("xlnet").config.from_dict({**SMALL, **options})


def test_xlnet_refuses_matrices_cut_into_other_heads(tmp_path):
    xlnet(tmp_path)
    config = tmp_path / "config.json"
    config.write_text(config.read_text().replace('"n_head": 3', '"n_head": 2').replace('"d_head": 4', '"d_head": 6'))
    with pytest.raises(CheckpointError, match="12×3×4"):
        hub.load_model(tmp_path)


def test_the_beam_answer_head_is_named_and_the_rest_is_loaded(tmp_path, caplog):
    theirs = transformers.XLNetForQuestionAnswering(transformers.XLNetConfig(**SMALL)).eval()
    theirs.save_pretrained(tmp_path)
    ours = hub.load_model(tmp_path)
    assert ours.task == "features" and "XLNetForQuestionAnswering" in caplog.text
    ids = torch.tensor([[5, 6, 7, 8]])
    with torch.no_grad():
        expected = theirs.transformer(ids).last_hidden_state
        torch.testing.assert_close(ours(ids).last_hidden_state, expected, rtol=1e-5, atol=1e-5)
    with pytest.raises(ConfigError, match="XLNetForQuestionAnswering"):
        hub.load_model(tmp_path, strict=True)
