"""BERT's relative position variants, which today's reference library no longer has: against the formula, in loops."""

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers.models.bert import modeling_bert

from clearhead import hub
from tests.tiny import shake


@pytest.mark.parametrize("kind", ["relative_key", "relative_key_query"])
@pytest.mark.parametrize("decoder", [False, True])
def test_relative_positions(tmp_path, monkeypatch, kind, decoder):
    config = transformers.BertConfig(
        vocab_size=40, hidden_size=12, num_attention_heads=3, num_hidden_layers=2, intermediate_size=20,
        max_position_embeddings=16, is_decoder=decoder,
    )  # fmt: skip
    config._attn_implementation = "eager"
    cls = transformers.BertLMHeadModel if decoder else transformers.BertForMaskedLM
    theirs = shake(cls(config))
    with torch.no_grad():  # relative models add no absolute position
        theirs.bert.embeddings.position_embeddings.weight.zero_()
    tables = {n: torch.randn(2 * 16 - 1, 4) for n in range(2)}

    def attention(module, query, key, value, mask, scaling=None, dropout=0.0, **_):
        scores = query @ key.transpose(-1, -2)
        for i in range(query.shape[2]):
            for j in range(key.shape[2]):
                r = tables[module.layer_idx][i - j + 15]
                scores[:, :, i, j] += query[:, :, i] @ r
                if kind == "relative_key_query":
                    scores[:, :, i, j] += key[:, :, j] @ r
        weights = (scores * scaling + (0 if mask is None else mask)).softmax(-1)
        return (weights @ value).transpose(1, 2).contiguous(), weights

    monkeypatch.setattr(modeling_bert, "eager_attention_forward", attention)
    theirs.save_pretrained(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    del tensors["bert.embeddings.position_embeddings.weight"]
    for n, table in tables.items():
        tensors[f"bert.encoder.layer.{n}.attention.self.distance_embedding.weight"] = table
    save_file(tensors, tmp_path / "model.safetensors")
    config.position_embedding_type = kind
    config.architectures = [cls.__name__]
    config.save_pretrained(tmp_path)

    ours = hub.load_model(tmp_path)
    ids = torch.randint(1, 40, (2, 9))
    with torch.no_grad():
        want = theirs(ids).logits
        torch.testing.assert_close(ours(ids).logits, want, rtol=1e-5, atol=1e-5)
        if decoder:  # the same, one token at a time
            cache, steps = None, []
            for n in range(9):
                out = ours(ids[:, n : n + 1], past_key_values=cache, use_cache=True)
                steps.append(out.logits)
                cache = out.past_key_values
            torch.testing.assert_close(torch.cat(steps, 1), want, rtol=1e-5, atol=1e-5)
    hub.save_model(ours, tmp_path / "again")
    with torch.no_grad():
        assert torch.equal(hub.load_model(tmp_path / "again")(ids).logits, ours(ids).logits)


def test_published_files_still_carry_the_unused_absolute_table(tmp_path):
    """Old relative checkpoints store position_embeddings.weight although nothing reads it."""
    config = transformers.BertConfig(
        vocab_size=40, hidden_size=12, num_attention_heads=3, num_hidden_layers=1, max_position_embeddings=16
    )
    transformers.BertForMaskedLM(config).save_pretrained(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    tensors["bert.encoder.layer.0.attention.self.distance_embedding.weight"] = torch.randn(31, 4)
    save_file(tensors, tmp_path / "model.safetensors")
    config.position_embedding_type = "relative_key"
    config.architectures = ["BertForMaskedLM"]
    config.save_pretrained(tmp_path)
    assert hub.load_model(tmp_path).stack.embed.positions is None
