"""BART's relatives: what the general checks do not reach. Old files, sizes, generation, training, languages."""

from __future__ import annotations

import json
import random

import pytest
import safetensors.torch
import torch
import transformers

from clearhead import hub, models
from clearhead.errors import ConfigError, InputError
from clearhead.models import family
from clearhead.pipeline import TextPipeline
from clearhead.text import load_tokenizer

from .families import FAMILIES
from .family_bart import draw_bart
from .harness import case, close, inputs, tokens, until_end

NAMES = ("bart", "mbart", "m2m_100", "marian", "pegasus")


@pytest.mark.parametrize("name", [preset for n in NAMES for preset in family(n).presets])
def test_presets_have_the_published_sizes(name):
    """Ours counts the constant added to the scores and leaves computed positions out; the reference the reverse."""
    fam = models.presets()[name]
    ours = fam.make(fam.preset(name), device="meta")
    ref = FAMILIES[fam.name]
    with torch.device("meta"):
        theirs = ref.classes["seq2seq-lm"](ref.config_class(**{**fam.preset(name).to_dict(), "id2label": None}))
    theirs.tie_weights()
    total = sum(p.numel() for p in theirs.parameters() if p.requires_grad)
    total += theirs.final_logits_bias.numel() if hasattr(theirs, "final_logits_bias") else 0
    assert ours.num_parameters() == total
    known = {
        "bart-base": 139.4,
        "bart-large": 406.3,
        "m2m100_418M": 483.9,
        "opus-mt-en-de": 74.0,
        "pegasus-large": 568.8,
    }
    if name in known:  # millions, without the constant
        bias = ours.head.output.bias
        assert (total - (0 if bias is None else bias.numel())) / 1e6 == pytest.approx(known[name], rel=0.02)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("seed", [0, 1])
def test_forced_and_forbidden_tokens(name, seed):
    c = case(name, "seq2seq-lm", seed)
    given = {key: value for key, value in inputs(c, time=6, pad="right").items() if "decoder" not in key}
    for options in (
        {"forced_bos_token_id": 7},
        {"forced_eos_token_id": 2, "num_beams": 3},
        {"forced_bos_token_id": 9, "forced_eos_token_id": [2], "num_beams": 2, "no_repeat_ngram_size": 2},
        {"bad_words_ids": [[8], [9, 10], [2]], "num_beams": 2},
        {"decoder_start_token_id": 4},
    ):
        theirs = c.theirs.generate(**given, max_new_tokens=7, do_sample=False, **options)
        ours = c.ours.generate(**given, max_new_tokens=7, **options)
        for a, b in zip(ours.tolist(), theirs.tolist(), strict=True):
            assert until_end(c, a, 1) == until_end(c, b, 1), options
        if "forced_bos_token_id" in options:
            assert (ours[:, 1] == options["forced_bos_token_id"]).all()
    plain = c.ours.generate(**given, max_new_tokens=7, forced_bos_token_id=7, forced_eos_token_id=[], eos_token_id=[])
    often = int(plain[0, 3])
    without = c.ours.generate(
        **given,
        max_new_tokens=7,
        bad_words_ids=[[often]],
        forced_bos_token_id=7,
        forced_eos_token_id=[],
        eos_token_id=[],
    )
    assert (plain == often).any()
    assert not (without[:, 2:] == often).any()
    with pytest.raises(InputError, match="holds the token 1000"):
        c.ours.generate(**given, max_new_tokens=3, forced_bos_token_id=1000)


def test_the_configuration_decides_what_is_forced_by_default(tmp_path):
    config = transformers.BartConfig(**{**draw_bart(random.Random(1), "seq2seq-lm"), "vocab_size": 50})
    theirs = FAMILIES["bart"].build(config, "seq2seq-lm")
    theirs.generation_config.forced_bos_token_id, theirs.generation_config.bad_words_ids = 11, [[12]]
    theirs.save_pretrained(tmp_path)
    ours = hub.load_model(tmp_path)  # the newest files say it in generation_config.json
    assert (ours.config.forced_bos_token_id, ours.config.bad_words_ids) == (11, [[12]])
    ids = torch.randint(3, 50, (2, 5))
    assert ours.generate(ids, max_new_tokens=5)[:, 1].tolist() == [11, 11]

    theirs.generation_config.forced_bos_token_id = theirs.generation_config.bad_words_ids = None
    theirs.generation_config.save_pretrained(tmp_path)
    raw = json.loads((tmp_path / "config.json").read_text())
    older = raw | {"forced_bos_token_id": 11, "bad_words_ids": [[12]], "force_bos_token_to_be_generated": True}
    (tmp_path / "config.json").write_text(json.dumps(older))
    ours = hub.load_model(tmp_path)  # what that file leaves out is not forced, whatever the older one says
    assert (ours.config.forced_bos_token_id, ours.config.bad_words_ids) == (None, None)
    want = type(theirs).from_pretrained(tmp_path).generate(ids, max_new_tokens=5, do_sample=False)
    assert ours.generate(ids, max_new_tokens=5).tolist() == want.tolist()

    (tmp_path / "generation_config.json").unlink()
    raw |= {"forced_bos_token_id": None, "force_bos_token_to_be_generated": True, "bos_token_id": 6}
    (tmp_path / "config.json").write_text(json.dumps(raw))
    ours = hub.load_model(tmp_path)  # the oldest by another name
    assert ours.generate(ids, max_new_tokens=5)[:, 1].tolist() == [6, 6]


@pytest.mark.parametrize("name", ["bart", "mbart", "marian", "pegasus"])
@pytest.mark.parametrize("beams", [1, 3])
def test_a_decoder_alone_continues_like_the_reference(name, beams):
    """Without padding. With it, the reference counts padding among its positions, and Clearhead does not."""
    c = case(name, "causal-lm", 0)
    ids = tokens(c.ours, 2, 4)
    theirs = c.theirs.generate(ids, max_new_tokens=7, num_beams=beams, do_sample=False)
    ours = c.ours.generate(ids, max_new_tokens=7, num_beams=beams)
    for a, b in zip(ours.tolist(), theirs.tolist(), strict=True):
        assert until_end(c, a, 4) == until_end(c, b, 4)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_labels_alone_are_enough_to_learn(name, seed):
    """The decoder reads the labels one step late; mBART's starts from their last token."""
    c = case(name, "seq2seq-lm", seed)
    given = {key: value for key, value in inputs(c, pad="right").items() if "decoder" not in key}
    labels = tokens(c.ours, 3, 6)
    labels[1, 4:] = -100
    with torch.no_grad():
        theirs, ours = c.theirs(**given, labels=labels), c.ours(**given, labels=labels)
    close(ours.loss, theirs.loss)
    close(ours.logits, theirs.logits)


@pytest.mark.parametrize("name", ["bart", "mbart"])
def test_a_decoder_given_nothing_reads_the_source(name):
    for task in ("seq2seq-lm", "features"):
        c = case(name, task, 1)
        given = {key: value for key, value in inputs(c, pad="right").items() if "decoder" not in key}
        with torch.no_grad():
            theirs, ours = c.theirs(**given), c.ours(**given)
        key = "logits" if task == "seq2seq-lm" else "last_hidden_state"
        close(ours[key], theirs[key])


@pytest.mark.parametrize("name", ["m2m_100", "marian", "pegasus"])
def test_other_decoders_must_be_given_something(name):
    c = case(name, "seq2seq-lm", 0)
    with pytest.raises(InputError, match="nothing to read"):
        c.ours(tokens(c.ours, 1, 4, source=True))


@pytest.mark.parametrize("name", (*NAMES, "bigbird_pegasus"))
@pytest.mark.parametrize("seed", [0, 1, 2, 3])
def test_vectors_in_place_of_words(name, seed):
    c = case(name, "seq2seq-lm", seed)
    width = c.ours.config.hidden_size
    given = {"inputs_embeds": torch.randn(2, 5, width), "decoder_inputs_embeds": torch.randn(2, 4, width)}
    with torch.no_grad():
        close(c.ours(**given).logits, c.theirs(**given).logits)


@pytest.mark.parametrize("name", NAMES)
def test_layers_are_left_out_in_training_only(name):
    fam = family(name)
    small = {"vocab_size": 40, "hidden_size": 8, "num_attention_heads": 2, "decoder_attention_heads": 2}
    small |= {"encoder_ffn_dim": 8, "decoder_ffn_dim": 8, "pad_token_id": 1}
    torch.manual_seed(0)
    model = fam.make(
        fam.config(**small, num_hidden_layers=2, decoder_layers=3, encoder_layerdrop=1.0, decoder_layerdrop=1.0)
    )
    ids = torch.randint(3, 40, (1, 5))
    with torch.no_grad():
        seen = {}
        for layer in (*model.encoder.layers, *model.decoder.layers):
            layer.register_forward_hook(lambda *_: seen.update(ran=seen.get("ran", 0) + 1))
        model.eval()(ids, decoder_input_ids=ids)
        assert seen.pop("ran") == 5
        model.train()(ids, decoder_input_ids=ids)
        assert not seen
    model = fam.make(
        fam.config(**small, num_hidden_layers=40, decoder_layers=1, encoder_layerdrop=0.5, decoder_layerdrop=0.0)
    )
    ran = []
    for layer in model.encoder.layers:
        layer.register_forward_hook(lambda *_: ran.append(1))
    model.train()(ids, decoder_input_ids=ids)
    assert 8 < len(ran) < 32


OLD = {  # keys that files of older library versions carry, as published ones do
    "bart": {
        "normalize_before": False, "normalize_embedding": True, "add_final_layer_norm": False, "add_bias_logits": False,
        "static_position_embeddings": False, "extra_pos_embeddings": 2, "classif_dropout": 0.1, "num_hidden_layers": 2,
        "gradient_checkpointing": False, "output_past": False, "_num_labels": 3, "do_blenderbot_90_layernorm": False,
    },
    "mbart": {"normalize_before": True, "normalize_embedding": True, "add_final_layer_norm": True},
    "marian": {
        "normalize_before": False, "normalize_embedding": False, "add_final_layer_norm": False,
        "static_position_embeddings": True, "extra_pos_embeddings": 1, "classif_dropout": 0.0, "num_hidden_layers": 2,
    },
    "pegasus": {
        "normalize_before": True, "normalize_embedding": False, "add_final_layer_norm": True,
        "static_position_embeddings": True, "extra_pos_embeddings": 1, "classif_dropout": 0.0,
    },
}  # fmt: skip


@pytest.mark.parametrize("name", OLD)
def test_older_files_say_what_a_family_is(name):
    raw = {"model_type": name, "vocab_size": 60, "pad_token_id": 1, "encoder_layers": 2, "is_encoder_decoder": True}
    config = family(name).config.from_dict({**raw, **OLD[name]})
    assert config.num_hidden_layers == 2
    if name == "bart":
        assert config.classifier_dropout == 0.1
        assert config.num_labels == 3
        assert family(name).config.from_dict({**raw, **OLD[name], "classifier_dropout": 0.0}).classifier_dropout == 0.0
    for key in ("normalize_before", "normalize_embedding", "add_final_layer_norm"):
        with pytest.raises(ConfigError, match=key):
            family(name).config.from_dict({**raw, **OLD[name], key: not OLD[name][key]})
    with pytest.raises(ConfigError, match="twice"):
        family(name).config.from_dict({**raw, "num_hidden_layers": 3})


@pytest.mark.parametrize(
    "wrong", [{"encoder_attention_heads": 5}, {"decoder_attention_heads": 7}, {"pad_token_id": 99}]
)
def test_impossible_configurations_are_refused(wrong):
    raw = {
        "vocab_size": 60,
        "d_model": 16,
        "encoder_attention_heads": 2,
        "decoder_attention_heads": 2,
        "pad_token_id": 1,
    }
    for name in NAMES:
        with pytest.raises(ConfigError):
            family(name).config.from_dict({**raw, **wrong})
    with pytest.raises(ConfigError, match="vocabularies differ"):
        family("marian").config.from_dict({**raw, "decoder_vocab_size": 61})
    with pytest.raises(ConfigError, match="pad_token_id"):
        family("m2m_100").config.from_dict({**raw, "pad_token_id": None})


def rewritten(c, folder, change):
    """The case's files with `change` applied to their tensors."""
    c.ref.save(c.theirs, folder)
    path = folder / "model.safetensors"
    tensors = safetensors.torch.load_file(path)
    change(tensors)
    safetensors.torch.save_file({k: v.clone() for k, v in tensors.items()}, path, metadata={"format": "pt"})
    return hub.load_model(folder)


def seed_with(name: str, **wanted) -> int:
    return next(
        s for s in range(4) if all(getattr(case(name, "seq2seq-lm", s).config, k) == v for k, v in wanted.items())
    )


@pytest.mark.parametrize("name", ["m2m_100", "marian", "pegasus"])
def test_tables_that_are_computed_are_skipped(name, tmp_path):
    c = case(name, "seq2seq-lm", 0)
    width = c.ours.config.hidden_size

    def change(tensors):
        for side in ("encoder", "decoder"):
            tensors[f"model.{side}.embed_positions.weight"] = torch.randn(11, width)
            tensors[f"model.{side}.embed_positions.weights"] = torch.randn(11, width)
            tensors[f"model.{side}.embed_positions._float_tensor"] = torch.randn(1)
            tensors[f"model.{side}.version"] = torch.tensor([3.0])

    given = inputs(c)
    with torch.no_grad():
        close(rewritten(c, tmp_path, change)(**given).logits, c.theirs(**given).logits)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "kept", ["lm_head.weight", "model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight"]
)
def test_one_table_under_any_of_its_names(name, kept, tmp_path):
    shared = {"share_encoder_decoder_embeddings": True} if name == "marian" else {}
    c = case(name, "seq2seq-lm", seed_with(name, tie_word_embeddings=True, **shared))

    def change(tensors):
        tensors[kept] = tensors.pop("model.shared.weight")

    given = inputs(c)
    ours = rewritten(c, tmp_path, change)
    assert ours.encoder.embed.tokens.weight is ours.decoder.embed.tokens.weight is ours.head.output.weight
    with torch.no_grad():
        close(ours(**given).logits, c.theirs(**given).logits)


def test_files_without_the_constant(tmp_path, caplog):
    c = case("bart", "seq2seq-lm", 0)
    ours = rewritten(c, tmp_path / "a", lambda tensors: tensors.pop("final_logits_bias"))
    given = inputs(c)
    with torch.no_grad():
        close(ours(**given).logits, c.theirs(**given).logits - c.theirs.final_logits_bias)
    assert not ours.head.output.bias.requires_grad
    assert not c.ours.head.output.bias.requires_grad
    # the body alone, as facebook/bart-large is published, still writes: its output is its embedding
    body = case("bart", "features", next(s for s in range(4) if case("bart", "features", s).config.tie_word_embeddings))
    body.ref.save(body.theirs, tmp_path / "b")
    writer = hub.load_model(tmp_path / "b", task="seq2seq-lm")
    assert "random values" not in caplog.text
    assert writer.head.output.weight is writer.decoder.embed.tokens.weight
    assert torch.equal(writer.head.output.weight, body.theirs.shared.weight)
    assert not writer.head.output.bias.any()


@pytest.mark.parametrize("name", ["mbart", "mbart50"])
def test_text_from_one_language_to_another(name, tmp_path):
    """Load a folder, translate: the codes of both languages end up where the model looks for them."""
    from tests.text.samples import corpus
    from tests.text.test_sentencepiece import train

    kind = {"mbart": "MBartTokenizer", "mbart50": "MBart50Tokenizer"}[name]
    (tmp_path / "sentencepiece.bpe.model").write_bytes(train(corpus(300), model_type="unigram", vocab_size=200))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": kind}))
    tok = load_tokenizer(tmp_path)
    fam = family("mbart")
    config = fam.config(
        vocab_size=len(tok), hidden_size=8, num_hidden_layers=1, decoder_layers=1, num_attention_heads=2,
        decoder_attention_heads=2, encoder_ffn_dim=8, decoder_ffn_dim=8, max_position_embeddings=32,
        decoder_start_token_id=None if name == "mbart" else 2,
    )  # fmt: skip
    torch.manual_seed(0)
    pipe = TextPipeline(fam.make(config), tok)
    texts = ["the man", "so they walked over there"]
    with torch.no_grad():
        for p in pipe.model.parameters():
            p.normal_(std=0.5)
    found = pipe.generate(texts, src_lang="fi_FI", tgt_lang="ro_RO", max_new_tokens=6)
    ids = [tok.with_src_lang("fi_FI").encode(text) for text in texts]
    code = tok.lang_code_to_id["ro_RO"]
    option = {"decoder_start_token_id": code} if name == "mbart" else {"forced_bos_token_id": code}
    for text, row in zip(found, ids, strict=True):
        out = pipe.model.generate(torch.tensor([row]), max_new_tokens=6, **option)[0].tolist()
        assert text == tok.decode(out, skip_special_tokens=True)
    assert tok.src_lang == "en_XX"
    with pytest.raises(InputError, match="no language"):
        pipe.generate("the", tgt_lang="xx", max_new_tokens=2)
