"""The 2017 Transformer as a Marian or a Pegasus: opened by transformers, with the same numbers."""

import json

import pytest
import torch
import transformers

from clearhead import hub
from clearhead.errors import InputError
from tests.tiny import tiny, tiny_pipeline

PRE = {"norm_first": True, "final_norm": True}
APART = {"tie_source_embeddings": False, "source_vocab_size": 31}


@pytest.mark.parametrize(
    ("options", "class_name"),
    [
        ({"tie_word_embeddings": True}, "MarianMTModel"),
        ({"tie_word_embeddings": True, "scale_embedding": False, "activation": "gelu"}, "MarianMTModel"),
        ({"tie_word_embeddings": True, "sinusoidal_layout": "halves", "bias": False}, "MarianMTModel"),
        ({"tie_word_embeddings": False}, "MarianMTModel"),
        ({"tie_word_embeddings": True, **APART}, "MarianMTModel"),
        ({"tie_word_embeddings": False, **APART}, "MarianMTModel"),
        ({"tie_word_embeddings": True, **PRE}, "PegasusForConditionalGeneration"),
        ({"tie_word_embeddings": False, "tie_source_embeddings": False, **PRE}, "PegasusForConditionalGeneration"),
    ],
)
def test_the_same_numbers_there(options, class_name, tmp_path):
    model = tiny("transformer", **options)
    hub.save_model(hub.in_format(model, "transformers"), tmp_path / "a")
    there = getattr(transformers, class_name).from_pretrained(tmp_path / "a").eval()
    ids, words = torch.tensor([[5, 9, 7, 22, 3], [8, 4, 0, 0, 0]]), torch.tensor([[1, 30, 12], [1, 6, 7]])
    inputs = {"input_ids": ids, "attention_mask": (ids != 0).long(), "decoder_input_ids": words}
    with torch.no_grad():
        torch.testing.assert_close(model(**inputs).logits, there(**inputs).logits, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(
            hub.load_model(tmp_path / "a")(**inputs).logits, model(**inputs).logits, rtol=1e-4, atol=1e-5
        )


def test_texts_are_written_the_same_there(tmp_path):
    pipe = tiny_pipeline("transformer", tie_word_embeddings=True, **PRE)
    pipe.save(tmp_path / "a", format="transformers")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "a")
    there = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "a").eval()
    inputs = tokenizer(["the cat sat"], return_tensors="pt")
    ids = there.generate(**inputs, max_new_tokens=8, do_sample=False, num_beams=1)
    assert ids.tolist() == pipe.model.generate(**inputs, max_new_tokens=8).tolist()


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"positions": "learned"}, "learned"),
        ({"norm_first": True}, "last norms"),
        ({"layer_norm_eps": 1e-6}, "layer_norm_eps"),
        ({**PRE, **APART}, "vocabulary"),
        ({**PRE, "tie_word_embeddings": True, "tie_source_embeddings": False}, "tables"),
    ],
)
def test_what_cannot_be_written_so_says_why(options, why):
    with pytest.raises(InputError, match=why):
        hub.in_format(tiny("transformer", **options), "transformers")


def test_other_families(tmp_path):
    bert = tiny("bert", "features")
    assert hub.in_format(bert, "transformers") is bert
    with pytest.raises(InputError, match="GPT-3"):
        hub.in_format(tiny("gpt3"), "transformers")
    with pytest.raises(InputError, match="onnx"):
        hub.in_format(bert, "onnx")


def test_a_folder_in_our_own_format_says_so(tmp_path):
    for name, said in (("transformer", True), ("bert", False)):
        raw = json.loads((hub.save_model(tiny(name), tmp_path / name) / "config.json").read_text())
        assert ("transformers does not know this family" in raw.get("_note", "")) is said
        hub.load_model(tmp_path / name, strict=True)
