"""What the common harness cannot draw of XLM: causal reading, summaries that see padding, masks told by lengths."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
import transformers
from transformers.models.xlm.modeling_xlm import create_sinusoidal_embeddings

from clearhead import hub
from clearhead.errors import ConfigError, InputError
from clearhead.models import family

from .family_xlm import REFERENCE
from .harness import close, compare_outputs, inputs, labels

SIZES = {"vocab_size": 31, "emb_dim": 12, "n_heads": 3, "n_layers": 2, "max_position_embeddings": 16, "n_langs": 3}


def opened(folder, task: str, **options) -> SimpleNamespace:
    torch.manual_seed(0)
    theirs = REFERENCE.build(transformers.XLMConfig(**{**SIZES, **options}), task)
    REFERENCE.save(theirs, folder)
    ours = hub.load_model(folder)
    assert ours.task == task
    return SimpleNamespace(ref=REFERENCE, theirs=theirs, ours=ours, folder=folder, task=task)


def test_causal_reading_with_and_without_a_cache(tmp_path):
    c = opened(tmp_path / "m", "masked-lm", causal=True)
    for pad in (None, "right"):
        compare_outputs(c, inputs(c, pad=pad))
    given = inputs(c)
    close(c.ours(**given, **labels(c, given)).loss, c.theirs(**given, **labels(c, given)).loss)
    ids, langs = torch.randint(3, 31, (2, 9)), torch.randint(0, 3, (2, 9))
    with torch.no_grad():
        whole = c.theirs(ids, langs=langs).logits
        first = c.ours(ids[:, :5], langs=langs[:, :5], use_cache=True)
        rest = c.ours(ids[:, 5:], langs=langs[:, 5:], past_key_values=first.past_key_values)
    close(torch.cat([first.logits, rest.logits], 1), whole)


def test_causal_reading_of_left_padded_texts_equals_one_by_one(tmp_path):
    c = opened(tmp_path / "m", "masked-lm", causal=True)
    given = inputs(c, pad="left")
    given["position_ids"] = (given["attention_mask"].cumsum(-1) - 1).clamp(min=0)
    with torch.no_grad():
        together = c.ours(**given).logits
        for row, mask in enumerate(given["attention_mask"].bool()):
            alone = c.theirs(given["input_ids"][row : row + 1, mask], langs=given["langs"][row : row + 1, mask])
            close(together[row : row + 1, mask], alone.logits)


@pytest.mark.parametrize("kind", ["first", "last", "mean", "cls_index"])
@pytest.mark.parametrize("task", ["sequence-classification", "multiple-choice"])
def test_every_summary_even_of_padding(tmp_path, kind, task):
    c = opened(tmp_path / "m", task, summary_type=kind, summary_activation="tanh", num_labels=3)
    for pad in (None, "right", "left"):
        given = inputs(c, pad=pad)
        compare_outputs(c, given)
        wanted = labels(c, given)
        close(c.ours(**given, **wanted).loss, c.theirs(**given, **wanted).loss)


def test_all_positions_agree_padding_too(tmp_path):
    c = opened(tmp_path / "m", "features")
    given = inputs(c)
    with torch.no_grad():
        close(c.ours(**given).last_hidden_state, c.theirs(**given).last_hidden_state)


@pytest.mark.parametrize("task", ["masked-lm", "multiple-choice"])
def test_without_a_mask_padding_tokens_are_counted(tmp_path, task):
    c = opened(tmp_path / "m", task)
    given = inputs(c)
    mask = given.pop("attention_mask")
    assert bool((given["input_ids"] == c.ours.config.pad_token_id).any())
    with torch.no_grad():
        close(c.ours(**given).logits, c.theirs(**given).logits)
        close(c.ours(**given, attention_mask=mask).logits, c.theirs(**given).logits)


def test_lengths_say_how_much_is_real(tmp_path):
    c = opened(tmp_path / "m", "masked-lm")
    lengths = torch.tensor([7, 3, 5])
    ids, vectors = torch.randint(3, 31, (3, 7)), torch.randn(3, 7, 12)
    with torch.no_grad():
        close(c.ours(ids, lengths=lengths).logits, c.theirs(ids, lengths=lengths).logits)
        ours = c.ours(inputs_embeds=vectors, lengths=lengths).logits
        close(ours, c.theirs(inputs_embeds=vectors, lengths=lengths).logits)


def test_token_types_are_looked_up_among_the_tokens(tmp_path):
    c = opened(tmp_path / "m", "features")
    given = inputs(c) | {"token_type_ids": torch.randint(0, 31, (3, 9))}
    compare_outputs(c, given)


def test_languages_must_be_known(tmp_path):
    ids = torch.randint(3, 31, (1, 4))
    c = opened(tmp_path / "m", "features")
    with pytest.raises(InputError, match="langs holds 3"):
        c.ours(ids, langs=torch.full((1, 4), 3))
    with pytest.raises(InputError, match="langs must have the shape"):
        c.ours(ids, langs=torch.zeros(1, 5, dtype=torch.long))
    single = opened(tmp_path / "single", "features", n_langs=1)
    with pytest.raises(InputError, match="no language embeddings"):
        single.ours(ids, langs=torch.zeros(1, 4, dtype=torch.long))


def test_fresh_positions_are_sines_where_the_config_says_so():
    made = family("xlm")
    model = made.make(made.config.from_dict({**SIZES, "sinusoidal_embeddings": True}), "features")
    want = create_sinusoidal_embeddings(16, 12, torch.empty(16, 12))
    torch.testing.assert_close(model.stack.embed.positions.weight.detach(), want)
    assert model.stack.embed.tokens.weight[2].abs().sum() == 0


def test_a_published_configuration():
    """The keys of xlm-mlm-en-2048, leftovers of its training code included."""
    made = family("xlm")
    published = {
        "model_type": "xlm", "architectures": ["XLMWithLMHeadModel"], "asm": False, "attention_dropout": 0.1,
        "bos_index": 0, "causal": False, "dropout": 0.1, "emb_dim": 2048, "embed_init_std": 0.02209708691207961,
        "end_n_top": 5, "eos_index": 1, "gelu_activation": True, "id2lang": {"0": "en"}, "init_std": 0.02,
        "is_encoder": True, "lang2id": {"en": 0}, "layer_norm_eps": 1e-12, "mask_index": 5,
        "max_position_embeddings": 512, "max_vocab": -1, "min_count": 0, "n_heads": 16, "n_langs": 1, "n_layers": 12,
        "n_words": 30145, "pad_index": 2, "pruned_heads": {}, "same_enc_dec": True, "share_inout_emb": True,
        "sinusoidal_embeddings": False, "start_n_top": 5, "summary_activation": None, "summary_first_dropout": 0.1,
        "summary_proj_to_labels": True, "summary_type": "first", "summary_use_proj": True, "unk_index": 3,
        "vocab_size": 30145,
    }  # fmt: skip
    assert made.config.from_dict(published) == made.preset("xlm-mlm-en-2048")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"asm": True}, "asm"),
        ({"is_encoder": False}, "is_encoder"),
        ({"share_inout_emb": False}, "share_inout_emb"),
        ({"summary_type": "attn"}, "summary_type"),
        ({"n_words": 32}, "vocab_size twice"),
        ({"summary_use_proj": False}, "summary_use_proj"),
        ({"summary_proj_to_labels": False}, "summary_proj_to_labels"),
    ],
)
def test_what_is_not_implemented_is_refused_by_name(options, said):
    made = family("xlm")
    with pytest.raises(ConfigError, match=said):
        made.make(made.config.from_dict({**SIZES, **options}), "sequence-classification", device="meta")
