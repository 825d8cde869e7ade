"""The seam: anything that becomes a row of vectors. An image classifier and an LSTM language model, each a short file,
load, save, train, are traced, write and are explained by what is there, without a line about them in the house."""

import copy

import numpy as np
import pytest
import torch

import clearhead as ch
from clearhead import models, pipeline
from clearhead.errors import InputError
from clearhead.pipeline import TextPipeline
from clearhead.text import train_tokenizer
from clearhead.train import fit
from clearhead.train.data.types import Batch
from clearhead.train.objectives.base import Objective, term_sums
from clearhead.train.objectives.causal import CausalLM
from clearhead.train.objectives.classification import Classification
from clearhead.units import PatchUnit
from tests.seam.pictures import ImagePipeline, PatchCodec
from tests.seam.tiny_lstm import FAMILY as LSTM
from tests.seam.tiny_lstm import TinyLSTMConfig
from tests.seam.tiny_vit import FAMILY as VIT
from tests.seam.tiny_vit import TinyViTConfig

SENTENCES = ["the cat sat on the mat", "the dog sat on the log", "a cat and a dog ran", "the mat and the log"] * 4


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    monkeypatch.setitem(models.FAMILIES, "tiny-vit", "tests.seam.tiny_vit")
    monkeypatch.setitem(models.FAMILIES, "tiny-lstm", "tests.seam.tiny_lstm")
    monkeypatch.setitem(pipeline.PIPELINES, "tiny-image", "tests.seam.pictures:ImagePipeline")


@pytest.fixture
def vit():
    torch.manual_seed(0)
    config = TinyViTConfig(id2label={0: "left", 1: "right"})
    return ImagePipeline(VIT.make(config), PatchCodec(config.patch_size), "tiny vit")


@pytest.fixture
def lstm():
    torch.manual_seed(0)
    tokenizer = train_tokenizer(SENTENCES, kind="bpe", vocab_size=290, show_progress=False)
    end = tokenizer.eos_token_id
    config = TinyLSTMConfig(vocab_size=len(tokenizer), bos_token_id=end, eos_token_id=end, pad_token_id=end)
    return TextPipeline(LSTM.make(config), tokenizer, "tiny lstm")


def picture(side: int, seed: int) -> np.ndarray:
    """(8, 8): noise, with a bright half."""
    image = np.random.default_rng(seed).random((8, 8)) * 0.4
    image[:, 4 * side : 4 * side + 4] += 0.5
    return image


# ---- load and save


def test_an_image_model_is_saved_and_loaded_by_its_family(vit, tmp_path):
    vit.save(tmp_path / "model")
    again = ch.load(tmp_path / "model")
    assert isinstance(again, ImagePipeline) and again.model.task == "sequence-classification"
    inputs = vit.codec(picture(0, 1))
    assert torch.equal(again.model(**inputs).logits, vit.model(**inputs).logits)
    assert again.model.config.id2label == {0: "left", 1: "right"} and again.codec.patch_size == 4


def test_an_lstm_is_saved_and_loaded_with_its_tokenizer(lstm, tmp_path):
    lstm.save(tmp_path / "model")
    again = ch.load(tmp_path / "model")
    ids = lstm.tokenizer("the cat", return_tensors="pt")["input_ids"]
    torch.testing.assert_close(again.model(input_ids=ids).logits, lstm.model(input_ids=ids).logits)
    assert again.tokenizer.encode("the cat sat") == lstm.tokenizer.encode("the cat sat")


def test_the_lstm_has_the_numbers_of_torch(lstm):
    reference = torch.nn.LSTM(16, 16, 2, batch_first=True)
    cells = [layer.cell.state_dict() for layer in lstm.model.stack.layers]
    reference.load_state_dict({f"{name}_l{n}": v for n, cell in enumerate(cells) for name, v in cell.items()})
    ids = lstm.tokenizer("the cat sat on the mat", return_tensors="pt")["input_ids"]
    table = lstm.model.stack.embed.tokens.weight
    want = reference(table[ids])[0] @ table.T
    torch.testing.assert_close(lstm.model(input_ids=ids).logits, want, rtol=1e-5, atol=1e-5)


def test_a_pipeline_says_what_it_cannot_do(vit):
    with pytest.raises(InputError, match="reads no text"):
        vit.tokenizer  # noqa: B018
    with pytest.raises(InputError, match="has no next token"):
        ch.explain.next_token(vit, "the cat")


# ---- traces


def test_the_inner_tensors_of_a_picture_have_their_names(vit):
    with ch.trace(vit.model, "layers.*.attention.weights", "embed.patches") as seen:
        vit.model(**vit.codec(picture(1, 2)))
    assert seen["layers.1.attention.weights"].shape == (1, 2, 4, 4)
    torch.testing.assert_close(seen["layers.0.attention.weights"].sum(-1), torch.ones(1, 2, 4))
    out = vit.model(**vit.codec(picture(1, 2)), output_attentions=True)
    assert torch.equal(out.attentions[0], seen["layers.0.attention.weights"])


def test_the_states_of_an_lstm_have_their_names(lstm):
    ids = lstm.tokenizer("the cat sat", return_tensors="pt")["input_ids"]
    with ch.trace(lstm.model, "layers.*.hidden|cell") as seen:
        logits = lstm.model(input_ids=ids).logits
    assert seen["layers.0.cell"].shape == seen["layers.1.hidden"].shape == (1, ids.shape[1], 16)
    torch.testing.assert_close(seen["layers.1.hidden"] @ lstm.model.stack.embed.tokens.weight.T, logits)
    with ch.trace(lstm.model, replace={"layers.0.hidden": torch.zeros_like}):
        assert not torch.equal(lstm.model(input_ids=ids).logits, logits)


# ---- writing


def by_hand(model, ids: list[int], new: int) -> list[int]:
    for _ in range(new):
        ids = [*ids, int(model(input_ids=torch.tensor([ids])).logits[0, -1].argmax())]
    return ids


def test_an_lstm_writes_through_generate(lstm):
    prompt = lstm.tokenizer.encode("the cat")
    want = by_hand(lstm.model, prompt, 8)
    got = lstm.model.generate(torch.tensor([prompt]), max_new_tokens=8, eos_token_id=[])
    assert got[0].tolist() == want
    written = lstm.write("the cat", max_new_tokens=5, do_sample=True, seed=3, num_return_sequences=2)
    alone = lstm.write("the cat", max_new_tokens=5, do_sample=True, seed=4)
    assert written[1].token_ids == alone[0].token_ids
    assert "".join(lstm.stream("the cat", max_new_tokens=5)) == lstm.generate("the cat", max_new_tokens=5)[7:]


def test_padded_texts_are_written_as_alone(lstm):
    texts = ["the cat sat on", "a dog"]
    together = lstm.generate(texts, max_new_tokens=6)
    assert together == [lstm.generate(text, max_new_tokens=6) for text in texts]


def test_beams_reorder_the_states_of_an_lstm(lstm):
    """Every beam's score is the sum that the whole text gets when it is read at once."""
    prompt = lstm.tokenizer.encode("the cat")
    found = lstm.model.generate(
        torch.tensor([prompt]), max_new_tokens=5, num_beams=4, num_return_sequences=4, eos_token_id=[],
        length_penalty=0.0, return_dict_in_generate=True,
    )  # fmt: skip
    log_probs = lstm.model(input_ids=found.sequences).logits.log_softmax(-1)[:, :-1]
    chosen = log_probs.gather(-1, found.sequences[:, 1:, None])[..., 0][:, len(prompt) - 1 :]
    torch.testing.assert_close(found.sequences_scores, chosen.sum(-1), rtol=1e-4, atol=1e-4)


def test_a_state_that_cannot_go_back_takes_no_draft(lstm):
    with pytest.raises(InputError, match=r"cannot|back"):
        lstm.generate("the cat", prompt_lookup_num_tokens=3, max_new_tokens=4)


# ---- explanations speak of units


def test_a_picture_is_read_as_patches(vit):
    reading = vit.read(picture(0, 1))
    assert reading.inputs["pixel_values"].shape == (1, 1, 8, 8)
    assert [(u.row, u.column) for u in reading.units] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert all(isinstance(u, PatchUnit) and u.kind == "patch" for u in reading.units)


# ---- training


class PictureClassification(Objective):
    """Which half of a picture is bright."""

    name, task, unit = "picture-classification", "sequence-classification", "patch"
    columns = ("image", "label")
    higher_is_better = frozenset({"accuracy"})

    def encode(self, record):
        pixels = self.codec(record["image"])["pixel_values"].numpy()
        yield {"pixels": pixels.ravel(), "patches": len(self.codec.units(record["image"])), "label": record["label"]}

    def collate(self, examples):
        pixels = torch.from_numpy(np.stack([example["pixels"] for example in examples])).view(-1, 1, 8, 8)
        labels = torch.tensor([example["label"] for example in examples])
        patches = sum(example["patches"] for example in examples)
        return Batch({"pixel_values": pixels, "labels": labels}, {"loss": len(examples)}, patches)

    def measure(self, model, batch):
        out = model(**batch.inputs)
        right = float((out.logits.argmax(-1) == batch.inputs["labels"]).sum())
        return term_sums({"loss": out.loss}, batch) | {"right": right}

    def report(self, sums):
        return super().report(sums) | {"accuracy": sums["right"] / sums["loss.count"]}


def pictures(seeds: range) -> list[dict]:
    return [{"image": picture(seed % 2, seed), "label": seed % 2} for seed in seeds]


def test_an_image_classifier_learns(vit):
    seen = []
    result = fit(
        vit.model, PictureClassification(vit.codec), pictures(range(32)), valid=pictures(range(100, 116)), steps=40,
        lr=3e-3, watchers=[seen.append],
    )  # fmt: skip
    assert result.losses[-1] < 0.1 < result.losses[0] and result.metrics["accuracy"] == 1.0
    assert seen[-1]["units"] == 40 * 8 * 4  # four patches of each picture
    with torch.no_grad():
        assert [int(vit.model(**vit.codec(picture(side, 7))).logits.argmax()) for side in (0, 1)] == [0, 1]


def test_an_lstm_learns_to_write(lstm):
    objective = CausalLM(lstm.tokenizer, 16, cross_documents=True)
    records = [{"text": sentence} for sentence in SENTENCES]
    result = fit(lstm.model, objective, records, valid=records[:4], steps=120, lr=2e-2)
    assert result.losses[-1] < 1.5 < result.losses[0] and result.metrics["perplexity"] < 4
    assert lstm.generate("the cat sat on", max_new_tokens=4, do_sample=False).startswith("the cat sat on the ")


def test_the_same_steps_again(lstm):
    twin = copy.deepcopy(lstm.model)
    records = [{"text": sentence} for sentence in SENTENCES]
    losses = [
        fit(model, CausalLM(lstm.tokenizer, 16, cross_documents=True), records, steps=3).losses
        for model in (lstm.model, twin)
    ]
    assert losses[0] == losses[1]


def test_text_objectives_need_a_tokenizer(vit):
    with pytest.raises(InputError, match="learns from text: it needs a tokenizer, not a PatchCodec"):
        CausalLM(vit.codec, 16)
    with pytest.raises(InputError, match="needs a tokenizer"):
        Classification(vit.codec, 16)
