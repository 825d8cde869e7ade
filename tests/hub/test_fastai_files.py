"""fastai's .pth files: every form that they come in, back to fastai, and what is refused."""

import json
import pickle

import pytest
import torch
from fastai.optimizer import Adam
from fastai.text.learner import load_model_text
from fastai.text.models.awdlstm import AWD_LSTM
from fastai.text.models.core import get_text_classifier

import clearhead as ch
from clearhead.errors import CheckpointError, ClearheadError, InputError, TokenizerError
from clearhead.text.word_rules import FILLER
from tests.recurrent.fastai_models import draw_classifier, draw_language_model, logits, shaken


@pytest.fixture
def folder(tmp_path):
    """With a language model of fastai's, its words beside it, as `learn.save` leaves it."""
    model, words = draw_language_model(2)
    write(model.state_dict(), words, tmp_path)
    return tmp_path


def write(value, words, folder):
    torch.save(value, folder / "model.pth")
    (folder / "vocab.json").write_text(json.dumps(words))


def some_ids(words):
    return torch.randint(2, len(words), (2, 9))


# ---- in


def test_a_state_dict_beside_the_optimisers_state(tmp_path):
    """As learn.save writes it after training: fastcore's lists and NumPy's numbers stand in the optimiser's part."""
    import numpy as np

    model, words = draw_language_model(1)
    optimizer, ids = Adam([list(model.parameters())], lr=1e-3), some_ids(words)
    logits(model, ids).sum().backward()
    optimizer.step()
    optimizer.hypers[0]["lr"] = np.float64(2e-3)
    write({"model": model.state_dict(), "opt": optimizer.state_dict()}, words, tmp_path)
    got = ch.load(tmp_path / "model.pth").model(input_ids=ids).logits
    torch.testing.assert_close(got, logits(model, ids), rtol=1e-5, atol=1e-5)


def test_of_a_matrix_that_is_there_twice_the_raw_one_counts(tmp_path):
    model, words = draw_language_model(4)
    state, ids = dict(model.state_dict()), some_ids(words)
    for n in range(len(model[0].rnns)):
        state[f"0.rnns.{n}.module.weight_hh_l0"] = torch.randn_like(state[f"0.rnns.{n}.weight_hh_l0_raw"])
    write(state, words, tmp_path)
    got = ch.load(tmp_path / "model.pth").model(input_ids=ids).logits
    torch.testing.assert_close(got, logits(model, ids), rtol=1e-5, atol=1e-5)


def test_an_encoder_alone_is_features_and_begins_a_classifier(tmp_path):
    model, words = draw_language_model(3)
    write(model[0].state_dict(), words, tmp_path)
    encoder, ids = ch.load(tmp_path / "model.pth"), some_ids(words)
    assert encoder.model.task == "features"
    model[0].reset()
    torch.testing.assert_close(encoder.model(input_ids=ids).last_hidden_state, model[0](ids), rtol=1e-5, atol=1e-5)
    begun = ch.load(tmp_path / "model.pth", task="sequence-classification")
    assert torch.equal(begun.model.stack.embed.tokens.weight, encoder.model.stack.embed.tokens.weight)


def test_words_beside_the_file(folder):
    words = json.loads((folder / "vocab.json").read_text())
    ids = ch.load(folder / "model.pth").tokenizer.encode("W1 w2")
    assert ids == [words.index(word) for word in ("xxbos", "xxup", "w1", "w2")]
    (folder / "vocab.json").rename(folder / "model.vocab.json")
    lm = ch.load(folder / "model.pth")
    config = lm.model.config
    assert lm.tokenizer.encode("W1 w2") == ids and (config.pad_token_id, config.bos_token_id) == (1, 2)
    (folder / "model.vocab.json").unlink()
    assert ch.load(folder / "model.pth", vocab=words).tokenizer.encode("W1 w2") == ids  # fastai's dls.vocab, as it is
    assert ch.load(folder / "model.pth", vocab=tuple(words)).tokenizer.encode("W1 w2") == ids
    for wrong, said in (([], "empty list"), ([*words[:-1], 3], "must be a string"), ([*words[:-1], "w1"], "'w1' twice"),
                        (7, "not int")):  # fmt: skip
        with pytest.raises(ClearheadError, match=said):
            ch.load(folder / "model.pth", vocab=wrong)
    bare = ch.load(folder / "model.pth")
    assert bare.model(input_ids=torch.tensor([[3, 4]])).logits.shape[-1] == len(words)
    with pytest.raises(TokenizerError, match=r"vocab="):
        bare.generate("w1")


def test_a_list_without_its_fillers(tmp_path):
    model, words = draw_language_model(0)
    write(model.state_dict(), words[:-4], tmp_path)
    assert len(ch.load(tmp_path / "model.pth").tokenizer) == len(words) - 4
    write(model.state_dict(), [*words[:-4], *[FILLER] * 4], tmp_path)
    lm = ch.load(tmp_path / "model.pth")
    assert lm.tokenizer.encode("xxfake") == [2, 0]
    lm.save(tmp_path / "again.pth")
    assert json.loads((tmp_path / "again.vocab.json").read_text())[-4:] == [FILLER] * 4


# ---- out


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("draw", [draw_language_model, draw_classifier])
def test_what_is_saved_here_opens_there_and_here(draw, seed, tmp_path):
    model, words = draw(seed)
    write(model.state_dict(), words, tmp_path)
    pipe, ids = ch.load(tmp_path / "model.pth"), some_ids(words)
    want = logits(model, ids)
    pipe.save(tmp_path / "again.pth")
    state = torch.load(tmp_path / "again.pth", weights_only=True)
    assert state.keys() == model.state_dict().keys()
    theirs, _ = draw(seed)
    shaken(theirs)
    load_model_text(tmp_path / "again.pth", theirs, opt=None, with_opt=False, strict=True)
    assert torch.equal(logits(theirs, ids), want)
    again = ch.load(tmp_path / "again.pth")
    assert torch.equal(again.model(input_ids=ids).logits, pipe.model(input_ids=ids).logits)
    pipe.save(tmp_path / "folder")
    from_folder = ch.load(tmp_path / "folder")
    assert torch.equal(from_folder.model(input_ids=ids).logits, again.model(input_ids=ids).logits)
    assert from_folder.tokenizer.encode("W1 w2 w2 w2") == pipe.tokenizer.encode("W1 w2 w2 w2")
    from_folder.save(tmp_path / "last.pth")
    assert torch.load(tmp_path / "last.pth", weights_only=True).keys() == state.keys()


def test_a_new_classifier_is_saved_as_fastais_own_default(folder):
    ch.load(folder / "model.pth", task="sequence-classification").save(folder / "classifier.pth")
    own = ch.load(folder / "model.pth").model.config
    config = {"emb_sz": own.hidden_size, "n_hid": own.recurrent_size, "n_layers": own.num_hidden_layers}
    theirs = get_text_classifier(AWD_LSTM, own.vocab_size, 2, config=config)
    theirs.load_state_dict(torch.load(folder / "classifier.pth", weights_only=True), strict=True)


def test_nothing_is_overwritten_unasked(folder):
    lm = ch.load(folder / "model.pth")
    before = (folder / "model.pth").read_bytes()
    with pytest.raises(CheckpointError, match="overwrite=True"):
        lm.save(folder / "model.pth")
    assert (folder / "model.pth").read_bytes() == before
    lm.save(folder / "model.pth", overwrite=True)
    with pytest.raises(InputError, match="it has no GPT-2"):
        ch.load("random-gpt2").save(folder / "gpt.pth")
    assert not (folder / "gpt.pth").exists()


# ---- what is refused


class Danger:
    def __reduce__(self):
        import os

        return os.mkdir, ("was-here",)


def renamed(state, *changes):
    for old, new in changes:
        state = {name.replace(old, new): tensor for name, tensor in state.items()}
    return state


REFUSED = {
    "code": (lambda state: state | {"extra": Danger()}, "it holds something other than tensors"),
    "code in opt": (lambda state: {"model": state, "opt": [Danger()]}, "other than tensors"),
    "no table": (lambda state: list(state.values()), "plain table of named tensors"),
    "qrnn": (lambda state: renamed(state, ("module.weight_ih_l0", "layers.0.linear.weight")), "a QRNN"),
    "bidirectional": (
        lambda state: state | {"0.rnns.0.module.weight_ih_l0_reverse": torch.zeros(4, 4)}, "in both directions",
    ),
    "transformer": (lambda state: {"0.layers.0.mhra.attention.weight": torch.zeros(4, 4)}, "a Transformer"),
    "fastai 1": (
        lambda state: state | {"1.layers.2.weight": torch.zeros(4, 4), "1.layers.2.bias": torch.zeros(4)}, "fastai 1",
    ),
    "another model": (lambda state: {"weight": torch.zeros(4, 4)}, "no AWD-LSTM of fastai's"),
    "empty": (lambda state: {}, "but nothing"),
    "a layer short": (lambda state: {n: t for n, t in state.items() if ".rnns.0.w" not in n}, "layer 0 lacks"),
    "no bias": (lambda state: {n: t for n, t in state.items() if not n.endswith("bias_ih_l0")}, "are missing"),
    "other shapes": (
        lambda state: state | {"0.rnns.0.module.weight_ih_l0": torch.zeros(7, 5)}, "those of no LSTM",
    ),
    "two tables": (lambda state: state | {"0.encoder_dp.emb.weight": state["0.encoder.weight"] + 1}, "two tables"),
    "a vector of words": (lambda state: state | {"0.encoder.weight": torch.zeros(4)}, "must be a matrix"),
    "whole numbers": (lambda state: {n: t.long() for n, t in state.items()}, "floating-point"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_other_files_are_refused_by_name(case, tmp_path):
    change, message = REFUSED[case]
    model, words = draw_language_model(5)
    write(change(dict(model.state_dict())), words, tmp_path)
    with pytest.raises(CheckpointError, match=message):
        ch.load(tmp_path / "model.pth")


def test_an_exported_learner_is_refused(tmp_path):
    (tmp_path / "export.pkl").write_bytes(pickle.dumps(Danger()))
    with pytest.raises(CheckpointError, match=r"refused|not a readable"):
        ch.load(tmp_path / "export.pkl")
    for content in (b"", b"PK\x03\x04 nothing", b"\x80\x02."):
        (tmp_path / "broken.pth").write_bytes(content)
        with pytest.raises(CheckpointError):
            ch.load(tmp_path / "broken.pth")


WORDS = {
    "a table": ({"a": 1}, "a JSON list of words; it holds a JSON dict"),
    "nothing": ([], "an empty list"),
    "numbers": (["a", 3], "word number 1 is a JSON int"),
    "twice": (["a", "b", "a"], "has 'a' twice"),
    "too few": (["a"], "Do they belong together"),
}


@pytest.mark.parametrize("case", WORDS)
def test_words_that_cannot_be(case, folder):
    words, message = WORDS[case]
    (folder / "vocab.json").write_text(json.dumps(words))
    with pytest.raises(ClearheadError, match=message):
        ch.load(folder / "model.pth")


def test_a_vocabulary_that_is_a_pickle(folder):
    (folder / "vocab.pkl").write_bytes(pickle.dumps(["a"]))
    with pytest.raises(TokenizerError, match="is a pickle"):
        ch.load(folder / "model.pth", vocab=folder / "vocab.pkl")
    with pytest.raises(TokenizerError, match="cannot be read"):
        ch.load(folder / "model.pth", vocab=folder / "none.json")
    with pytest.raises(InputError, match=r"vocab= is for a file of fastai's"):
        ch.load("random-gpt2", vocab=folder / "vocab.json")
