"""Translation language modelling: the shape of a pair, positions and languages as XLM has them, masks in both."""

import numpy as np
import pytest
import torch

from clearhead.errors import InputError
from clearhead.train.objectives.translation_lm import TranslationLM
from tests.train.objectives.pretraining import bart_bpe, batch_of, model_of, rng, same, steps_lower_the_loss, wordpiece

TOK = wordpiece()
PAIRS = [
    {"source": "The cat sat on the mat.", "target": "mat the on sat cat the"},
    {"source": "I will read the book.", "target": "book the read will I you"},
    {"source": "Attention lets every output look.", "target": "look output"},
]


def examples_of(objective, pairs=PAIRS):
    return [example for pair in pairs for example in objective.encode(pair)]


def test_the_shape_of_a_pair():
    objective = TranslationLM(TOK, 64)
    source, target = (TOK.encode(PAIRS[0][side], add_special_tokens=False) for side in ("source", "target"))
    (example,) = objective.encode(PAIRS[0])
    cls, sep = TOK.cls_token_id, TOK.sep_token_id
    assert example["input_ids"].tolist() == [cls, *source, sep, cls, *target, sep]
    inputs = batch_of(objective, [example]).inputs
    first, second = len(source) + 2, len(target) + 2
    assert inputs["position_ids"].tolist() == [[*range(first), *range(second)]]
    assert inputs["langs"].tolist() == [[0] * first + [1] * second]
    assert not TranslationLM.blocks and TranslationLM.task == "masked-lm"


def test_words_are_masked_in_both():
    objective = TranslationLM(TOK, 64)
    (example,) = objective.encode(PAIRS[0])
    both = [0, 0]
    count = 0
    for seed in range(300):
        made = objective.noise(example, rng(seed))
        chosen = np.flatnonzero(made["labels"] >= 0)
        both[0] += (chosen < example["second"]).sum()
        both[1] += (chosen >= example["second"]).sum()
        count += len(chosen)
        assert not np.isin(made["labels"], TOK.all_special_ids).any()
        assert (made["labels"][chosen] == example["input_ids"][chosen]).all()
    words = ~np.isin(example["input_ids"], TOK.all_special_ids)
    share = words[: example["second"]].sum() / words.sum()
    assert both[0] / count == pytest.approx(share, abs=0.05)
    assert count / 300 == max(1, round(0.15 * len(example["input_ids"])))
    assert same(objective.noise(example, rng(1)), objective.noise(example, rng(1)))


def test_a_pair_that_is_too_long_is_left_out():
    (example,) = TranslationLM(TOK, 64).encode(PAIRS[0])
    size = len(example["input_ids"])
    assert len(list(TranslationLM(TOK, size).encode(PAIRS[0]))) == 1
    assert list(TranslationLM(TOK, size - 1).encode(PAIRS[0])) == []


def test_xlm_learns_with_its_languages():
    objective = TranslationLM(TOK, 48, languages=["en", "rev"])
    model = model_of("xlm", TOK, "masked-lm", objective.configure, pad_token_id=TOK.pad_token_id)
    assert model.config.n_langs == 2 and model.config.also_stored["lang2id"] == {"en": 0, "rev": 1}
    batch = batch_of(objective, examples_of(objective))
    steps_lower_the_loss(objective, model, batch)
    grad = model.stack.embed.languages.weight.grad
    assert bool((grad != 0).any(1).all())  # both languages were used


def test_names_give_the_numbers():
    def stored(config):
        return config | {"n_langs": 3, "lang2id": {"de": 0, "rev": 1, "en": 2}}

    objective = TranslationLM(TOK, 48, languages=["en", "de"])
    objective.training_module(model_of("xlm", TOK, "masked-lm", stored))
    batch = batch_of(objective, examples_of(objective))
    langs = objective.model_inputs(batch)["langs"]
    assert torch.equal(langs == 2, batch.inputs["langs"] == 0) and set(langs.flatten().tolist()) == {0, 2}
    with pytest.raises(InputError, match="does not know the language 'fr'; it knows de, rev, en"):
        TranslationLM(TOK, 48, languages=["en", "fr"]).training_module(model_of("xlm", TOK, "masked-lm", stored))
    with pytest.raises(InputError, match="languages"):
        TranslationLM(TOK, 48, languages=["en"])


@pytest.mark.parametrize(("family", "tokenizer"), [("bert", wordpiece), ("roberta", bart_bpe)])
def test_models_that_know_no_languages(family, tokenizer):
    tok = tokenizer()
    objective = TranslationLM(tok, 60)
    model = model_of(family, tok, "masked-lm", pad_token_id=tok.pad_token_id, max_position_embeddings=600)
    batch = batch_of(objective, examples_of(objective))
    steps_lower_the_loss(objective, model, batch)
    given = objective.model_inputs(batch)
    assert "langs" not in given
    first = 0 if family == "bert" else tok.pad_token_id + 1
    assert int(given["position_ids"].min()) == first


def test_bad_records():
    objective = TranslationLM(TOK, 48)
    with pytest.raises(InputError, match=r"pairs:2 has no column 'target'"):
        list(objective.encode({"source": "a", "where": "pairs:2"}))
    with pytest.raises(InputError, match="encoder and a decoder"):
        objective.training_module(model_of("t5", TOK, "seq2seq-lm"))
