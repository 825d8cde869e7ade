"""Tracing, the glass walls: every inner tensor by name, to keep and to replace, at no cost when nobody looks."""

import dataclasses
import sys
import threading

import pytest
import torch
from torch import Tensor, nn

from clearhead.errors import InputError, TraceError
from clearhead.models import FAMILIES, Model, family
from clearhead.models.clip_text import ClipTextConfig
from clearhead.models.clip_vision import ClipVisionConfig
from clearhead.models.encoder_decoder import EncoderDecoderModel
from clearhead.models.retrieval import RetrievalModel
from clearhead.nn import (
    GRU,
    LSTM,
    Attention,
    KVCache,
    Stack,
    Trace,
    attention,
    block,
    embedding,
    feedforward,
    stack,
    tap,
    tap_points,
    trace,
)
from clearhead.nn.bidirectional_stack import BidirectionalStack
from clearhead.nn.patches import PatchEmbedder
from clearhead.nn.recurrent_decoder import RecurrentDecoder
from clearhead.nn.recurrent_stack import RecurrentLayer

BATCH, TIME, SOURCE, CHOICES = 2, 5, 4, 3
SMALL = {
    "vocab_size": 23,
    "hidden_size": 12,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "decoder_attention_heads": 3,
    "encoder_ffn_dim": 20,
    "decoder_ffn_dim": 20,
    "intermediate_size": 20,
    "feedforward_size": 20,
    "max_position_embeddings": 16,
    "rotary_dim": 4,
    "cutoffs": [5, 11],
    "mem_len": 0,
    "same_length": False,
    "lstm_size": 7,
    "projection_size": 6,
    "filters": [[1, 3], [2, 5]],
    "num_highways": 2,
    "character_size": 4,
    "max_characters": 9,
}


def small(name: str, task: str | None = None, **more) -> Model:
    """A tiny model of any family, with weights wide enough for every tensor to matter."""
    chosen = family(name)
    known = {f.name for f in dataclasses.fields(chosen.config)}
    if (getattr(chosen.config, "pad_token_id", None) or 0) >= SMALL["vocab_size"]:
        more.setdefault("pad_token_id", 0)  # Marian's is the last word of a large vocabulary
    torch.manual_seed(0)
    model = chosen.make(chosen.config(**{k: v for k, v in SMALL.items() if k in known}, **more), task)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    return model


@pytest.fixture
def gpt2() -> Model:
    return small("gpt2")


def ids_of(batch: int = BATCH, time: int = TIME, seed: int = 0) -> Tensor:
    return torch.randint(3, 23, (batch, time), generator=torch.Generator().manual_seed(seed))


def open_traces() -> list[Trace]:
    return list(sys.modules["clearhead.nn.tracing"]._open_traces)  # the package's own `tap` is the function


@pytest.fixture(autouse=True)
def nothing_is_left_open():
    yield
    left = open_traces()
    for seen in left:  # so that one failure does not look like many
        seen.__exit__(None, None, None)
    assert left == []


# --- every family announces what it declares ---------------------------------------------------------------------

CHUNKS = {"chunk_size": 2, "chunked_attention_layers": [1, 2], "head_dim": 4, "encoder_hidden_size": 10}
TOWER = {key: SMALL[key] for key in ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")}
TEXT = {"eos_token_id": 2}  # the largest id ends a text
PICTURE = {"image_size": 8, "patch_size": 4}  # a class vector and four patches: as many as TIME
NEEDED = {  # without which a family would announce little
    "retro": CHUNKS,
    "clip_text_model": TEXT,
    "clip_vision_model": PICTURE,
    "clip": {
        "text_config": ClipTextConfig(**TOWER, **TEXT, vocab_size=23, max_position_embeddings=16),
        "vision_config": ClipVisionConfig(**TOWER, **PICTURE),
    },
}

MODELS = {
    f"{name} {task}": (name, task, NEEDED.get(name, {})) for name in FAMILIES for task in family(name).architectures
} | {
    "retro with a null key, rotary": (
        "retro",
        "causal-lm",
        {**CHUNKS, "null_key": True, "neighbor_positions": "rotary", "encoder_projection": True},
    ),
    "retro post-norm, gated": (
        "retro",
        "causal-lm",
        {**CHUNKS, "norm_placement": "post", "norm": "gated_rms_norm", "residual_scale": 1.5},
    ),
    "gpt2 with cross-attention": ("gpt2", "causal-lm", {"add_cross_attention": True}),
    "gpt2 upcast, scaled by layer": (
        "gpt2",
        "causal-lm",
        {"reorder_and_upcast_attn": True, "scale_attn_by_inverse_layer_idx": True},
    ),
    "gpt3 with a narrow band": ("gpt3", "causal-lm", {"band": 2, "head_dim": 6}),
    "gpt_neo with a narrow window": ("gpt_neo", "causal-lm", {"window_size": 2}),
    "bert decoder": ("bert", "causal-lm", {"is_decoder": True, "add_cross_attention": True}),
    "bert with relative keys": ("bert", "masked-lm", {"position_embedding_type": "relative_key"}),
    "bert with relative keys and queries": (
        "bert",
        "masked-lm",
        {"position_embedding_type": "relative_key_query"},
    ),
    "roberta decoder": ("roberta", "causal-lm", {"is_decoder": True, "add_cross_attention": True}),
    "electra decoder": ("electra", "causal-lm", {"is_decoder": True, "embedding_size": 7}),
    "electra of one width": ("electra", "replaced-token", {"embedding_size": 12}),
    "albert with groups": ("albert", "pretraining", {"num_hidden_groups": 2, "inner_group_num": 2}),
    "deberta with distances and talking heads": (
        "deberta",
        "masked-lm",
        {"relative_attention": True, "pos_att_type": "c2p|p2c", "talking_head": True},
    ),
    "deberta-v2 with distances and a convolution": (
        "deberta-v2",
        "masked-lm",
        {
            "relative_attention": True,
            "pos_att_type": "c2p|p2c",
            "position_buckets": 6,
            "share_att_key": True,
            "norm_rel_ebd": "layer_norm",
            "conv_kernel_size": 3,
            "type_vocab_size": 2,
            "embedding_size": 12,
        },
    ),
    "rnn of two LSTMs": ("rnn", "causal-lm", {"embedding_size": 12}),
    "rnn of GRUs in both directions": ("rnn", "token-classification", {"cell": "gru", "bidirectional": True}),
    "rnn with three summaries": ("rnn", "sequence-classification", {"cell": "rnn", "pooling": "concat"}),
    "rnn-seq2seq with dot products": ("rnn-seq2seq", "seq2seq-lm", {"attention": "dot", "readout_size": 7}),
    "rnn-seq2seq that looks at a window, fed": (
        "rnn-seq2seq",
        "seq2seq-lm",
        {"attention": "concat", "attention_window": 2, "input_feeding": True, "cell": "gru"},
    ),
    "rnn-seq2seq of one vector": ("rnn-seq2seq", "seq2seq-lm", {"attention": None, "feed_context": True}),
    "awd-lstm": ("awd-lstm", "causal-lm", {"recurrent_size": 9}),
    "awd-lstm that classifies": ("awd-lstm", "sequence-classification", {"recurrent_size": 9}),
    "xlm with languages, causal": ("xlm", "masked-lm", {"n_langs": 2, "causal": True}),
    "transformer pre-norm": ("transformer", "seq2seq-lm", {"norm_first": True, "final_norm": True}),
    "transformer with learned positions": ("transformer", "seq2seq-lm", {"positions": "learned", "activation": "gelu"}),
}


def all_inputs(model: Model, task: str) -> dict[str, Tensor]:
    """Everything that the model can be given, so that everything it can announce is computed."""
    if isinstance(model, EncoderDecoderModel):
        source = ids_of(time=SOURCE)
        if task == "sequence-classification":
            source[:, -1] = model.config.eos_token_id  # the token that these heads read
        return {"input_ids": source, "decoder_input_ids": ids_of(seed=1)}
    rows = BATCH * CHOICES if task == "multiple-choice" else BATCH
    if isinstance(model.output_stack.embed, PatchEmbedder):
        picture = {"pixel_values": torch.randn(rows, 3, 8, 8, generator=torch.Generator().manual_seed(6))}
        return picture | ({"input_ids": ids_of(rows)} if "text" in model.stacks else {})
    if isinstance(model.stack, BidirectionalStack):
        words = torch.randint(1, 262, (rows, TIME, 9), generator=torch.Generator().manual_seed(0))
        return {"character_ids": words, "output_hidden_states": True}
    given = {"input_ids": ids_of(rows)}
    if isinstance(model, RetrievalModel):
        given["neighbor_ids"] = ids_of(rows * 2 * 2, 3, seed=5).view(rows, 2, 2, 3)
    if model.stack.embed.has_segments:
        given["token_type_ids"] = ids_of(rows, seed=2) % min(2, getattr(model.config, "type_vocab_size", 2))
    if model.stack.embed.languages is not None:
        given["langs"] = ids_of(rows, seed=4) % 2
    if task == "multiple-choice":
        given = {name: t.view(BATCH, CHOICES, TIME) for name, t in given.items()}
    if any(getattr(layer, "cross_attention", None) is not None for layer in model.stack.layers):
        given["encoder_hidden_states"] = torch.randn(rows, SOURCE, 12, generator=torch.Generator().manual_seed(3))
    if task == "sequence-classification":
        model.config.pad_token_id = 0  # GPT-2 has none; it says where each text ends
    return given


def answer(model: Model, given: dict[str, Tensor]) -> Tensor:
    """One number that depends on all that the model gives back."""
    out = model(**given)
    total = torch.zeros((), dtype=torch.float64)
    items = [*out.items(), *((f"layer {n}", layer) for n, layer in enumerate(out.hidden_states or ()))]
    for name, tensor in items:
        if isinstance(tensor, Tensor) and name != "encoder_last_hidden_state":
            slope = torch.randn(tensor.shape, generator=torch.Generator().manual_seed(len(name)))
            total = total + (tensor.double() * slope).sum()
    return total


def expected_shape(name: str, model: Model, rows: int) -> tuple[int, ...] | None:
    """What DESIGN says of a tensor's shape; None for the tasks' own tensors."""
    parts = name.split(".")
    side = parts.pop(0) if parts[0] in model.stacks else ""
    if parts[0] == "neighbor_encoder":
        return None
    body: Stack | None = model.stacks.get(side)
    time = SOURCE if side == "encoder" else TIME
    width = getattr(model.config, "hidden_size", 12)
    if body is not None and any(isinstance(layer, RecurrentLayer) for layer in body.layers):
        return recurrent_shape(parts, body, (rows, time))
    if isinstance(body, BidirectionalStack):
        return elmo_shape(parts, body, (rows, time))
    match parts:
        case ["embed", "tokens" | "positions" | "segments" as which]:
            one_for_all = which == "positions" and getattr(body.embed, "padding_position", None) is None
            table = getattr(body.embed, "tokens", None)
            return (1 if one_for_all else rows, time, getattr(table, "embedding_dim", width))
        case ["embed", _] | ["final", "norm"] | ["layers", _, "input" | "output"]:
            return (rows, time, width)
        case ["layers", n, "feedforward", which]:
            hidden = body.layers[int(n)].feedforward.up.out_features
            return (rows, time, hidden if which == "hidden" else width)
        case ["layers", n, "chunked_attention", which]:
            chunks, layer = rows * 2, body.layers[int(n)].chunked_attention  # two neighbours of three tokens
            seen = 6 + (layer.null_key is not None)
            return {
                "query": (chunks, layer.heads, 2, layer.head_dim),
                "key": (chunks, layer.heads, 6, layer.head_dim),
                "value": (chunks, layer.heads, 6, layer.head_dim),
                "scores": (chunks, layer.heads, 2, seen),
                "weights": (chunks, layer.heads, 2, seen),
                "heads": (chunks, layer.heads, 2, layer.head_dim),
                "output": (rows, time, width),
            }[which]
        case ["layers", n, kind, which]:
            layer: Attention = getattr(body.layers[int(n)], kind)
            key = SOURCE if kind == "cross_attention" else time
            if which in ("key", "value"):
                return (rows, layer.kv_heads, key, layer.head_dim)
            if which in ("query", "heads"):
                return (rows, layer.heads, time, layer.head_dim)
            return (rows, layer.heads, time, key) if which in ("scores", "weights") else (rows, time, width)
    return None


def is_gathered(name: str, model: Model) -> bool:
    """What is done step by step is gathered after the last step: seen on the way, but not on it itself."""
    parts = name.split(".")
    if parts[-1] in {*LSTM.taps_of_a_layer, *GRU.taps_of_a_layer}:
        return True
    decoder = model.output_stack
    if not isinstance(decoder, RecurrentDecoder):
        return False
    if decoder.attention is None and name == f"encoder.layers.{len(model.encoder.layers) - 1}.output":
        return True  # nobody looks at what the encoder says of each word
    return decoder.goes_step_by_step and parts[0] == "decoder" and parts[1] in ("layers", "attention")


def recurrent_shape(parts: list[str], body: Stack, places: tuple[int, int]) -> tuple[int, ...] | None:
    match parts:
        case ["layers", n, "input" | "output" as which]:
            layer = body.layers[int(n)]
            return (*places, layer.rnn.input_size if which == "input" else layer.width)
        case ["layers", n, *_, "from_input" | "from_state"]:  # of all gates, side by side
            return (*places, body.layers[int(n)].rnn.weight_hh_l0.shape[0])
        case ["layers", n, *_]:
            return (*places, body.layers[int(n)].rnn.hidden_size)
        case ["attention", "state"]:
            return (*places, body.layers[-1].width)
        case ["attention", "scores" | "weights"]:
            return (*places, SOURCE)
        case ["embed", _]:
            return (*places, body.embed.tokens.embedding_dim)
    return None


def elmo_shape(parts: list[str], body: BidirectionalStack, places: tuple[int, int]) -> tuple[int, ...] | None:
    match parts:
        case ["embed", "characters"]:
            return (*places, 9, 4)
        case ["embed", "filters"] | ["embed", "highways", _, _]:
            return (*places, 8)
        case ["embed", "output"]:
            return (*places, 6)
        case ["layers", _, "input" | "output"]:
            return (*places, 12)
        case ["layers", _, "forward" | "backward", which]:
            return (*places, 6 if which == "hidden" else 7)
    return None


@pytest.mark.parametrize("name", list(MODELS))
def test_every_declared_tensor_is_announced_with_its_shape_and_its_gradient(name):
    family_name, task, options = MODELS[name]
    model = small(family_name, task, **options)
    given = all_inputs(model, task)
    declared = set(tap_points(model))
    assert declared
    with trace(model, "**") as seen:
        total = answer(model, given)
    assert set(seen) == declared
    rows = BATCH * CHOICES if task == "multiple-choice" else BATCH
    for tensor_name, tensor in seen.items():
        shape = expected_shape(tensor_name, model, rows)
        assert shape is None or tuple(tensor.shape) == shape, tensor_name

    # Each of them lies on the way from the input to the answer: the answer has a gradient in it.
    seen = {n: tensor for n, tensor in seen.items() if not is_gathered(n, model)}
    graded = [n for n, tensor in seen.items() if tensor.requires_grad]
    assert set(seen) - set(graded) <= {f"{side}embed.positions" for side in ("", "encoder.", "decoder.")}
    grads = torch.autograd.grad(total, [seen[n] for n in graded], allow_unused=True)
    flat = [n for n, grad in zip(graded, grads, strict=True) if grad is None or not grad.any()]
    assert flat == []


@pytest.mark.parametrize(
    "name",
    [
        "gpt2 causal-lm",
        "gpt3 with a narrow band",
        "bert pretraining",
        "bert decoder",
        "albert masked-lm",
        "albert with groups",
        "electra replaced-token",
        "xlm-roberta-xl causal-lm",
        "deberta with distances and talking heads",
        "deberta-v2 with distances and a convolution",
        "transformer with learned positions",
        "retro causal-lm",
        "retro with a null key, rotary",
        "retro post-norm, gated",
    ],
)
def test_replacing_a_tensor_moves_the_answer_as_its_gradient_says(name):
    """Capture, replacement and gradient of every tensor belong together: a step along v changes f by ∇f · v."""
    family_name, task, options = MODELS[name]
    model = small(family_name, task, **options).double()
    given = {k: v.double() if v.is_floating_point() else v for k, v in all_inputs(model, task).items()}
    with trace(model, "**") as seen:
        total = answer(model, given)
    names = [n for n, tensor in seen.items() if tensor.requires_grad]
    grads = torch.autograd.grad(total, [seen[n] for n in names])
    for tensor_name, grad in zip(names, grads, strict=True):
        step = torch.randn(grad.shape, generator=torch.Generator().manual_seed(1)).double()
        values = []
        for size in (1e-3, -1e-3):
            with torch.no_grad(), trace(model, replace={tensor_name: lambda z, s=size, v=step: z + s * v}):
                values.append(answer(model, given))
        moved = (values[0] - values[1]).item() / 2e-3
        assert moved == pytest.approx((grad * step).sum().item(), rel=5e-3, abs=5e-3), tensor_name


def names_of(side: str, layers: int, *, cross: bool, embed: str, final: bool) -> set[str]:
    """The names in DESIGN, written out."""
    found = {f"{side}embed.{part}" for part in embed.split()}
    for n in range(layers):
        kinds = ("attention", "cross_attention") if cross else ("attention",)
        found |= {
            f"{side}layers.{n}.{part}" for part in ("input", "output", "feedforward.hidden", "feedforward.output")
        }
        found |= {
            f"{side}layers.{n}.{kind}.{part}"
            for kind in kinds
            for part in ("query", "key", "value", "scores", "weights", "heads", "output")
        }
    return found | ({f"{side}final.norm"} if final else set())


@pytest.mark.parametrize(
    "name,want",
    [
        (
            "gpt2 causal-lm",
            names_of("", 2, cross=False, embed="tokens positions segments output", final=True) | {"logits"},
        ),
        (
            "gpt2 with cross-attention",
            names_of("", 2, cross=True, embed="tokens positions segments output", final=True) | {"logits"},
        ),
        ("gpt2 features", names_of("", 2, cross=False, embed="tokens positions segments output", final=True)),
        (
            "gpt3 causal-lm",
            names_of("", 2, cross=False, embed="tokens positions segments output", final=True) | {"logits"},
        ),
        (
            "bert masked-lm",
            names_of("", 2, cross=False, embed="tokens positions segments output", final=False) | {"logits"},
        ),
        (
            "bert with relative keys",
            names_of("", 2, cross=False, embed="tokens segments output", final=False) | {"logits"},
        ),
        (
            "bert sequence-classification",
            names_of("", 2, cross=False, embed="tokens positions segments output", final=False) | {"pooled", "logits"},
        ),
        (
            "bert pretraining",
            names_of("", 2, cross=False, embed="tokens positions segments output", final=False)
            | {"logits", "next_sentence.pooled", "next_sentence.logits"},
        ),
        (
            "transformer seq2seq-lm",
            names_of("encoder.", 2, cross=False, embed="tokens positions output", final=False)
            | names_of("decoder.", 2, cross=True, embed="tokens positions output", final=False)
            | {"logits"},
        ),
        (
            "transformer pre-norm",
            names_of("encoder.", 2, cross=False, embed="tokens positions output", final=True)
            | names_of("decoder.", 2, cross=True, embed="tokens positions output", final=True)
            | {"logits"},
        ),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_the_names_are_those_of_the_design(name, want):
    family_name, task, options = MODELS[name]
    assert set(tap_points(small(family_name, task, **options))) == want


def test_neighbouring_tensors_agree(gpt2):
    with trace(gpt2, "**") as seen:
        out = gpt2(ids_of())
    assert torch.equal(seen["embed.output"], seen["layers.0.input"])
    assert torch.equal(seen["layers.0.output"], seen["layers.1.input"])
    torch.testing.assert_close(seen["final.norm"], gpt2.stack.final_norm(seen["layers.1.output"]))
    torch.testing.assert_close(seen["embed.output"], seen["embed.tokens"] + seen["embed.positions"])
    assert seen["logits"] is out.logits


def test_watching_does_not_change_the_answer(gpt2):
    want = gpt2(ids_of()).logits
    with trace(gpt2, "**"):
        torch.testing.assert_close(gpt2(ids_of()).logits, want, rtol=1e-5, atol=1e-5)
    with trace(gpt2, "layers.*.output", "logits"):  # nothing that needs the explicit path
        assert torch.equal(gpt2(ids_of()).logits, want)


# --- patterns ----------------------------------------------------------------------------------------------------

LAYER_0 = names_of("", 1, cross=False, embed="", final=False)


@pytest.mark.parametrize(
    "pattern,want",
    [
        ("layers.1.attention.weights", {"layers.1.attention.weights"}),
        ("layers.*.output", {"layers.0.output", "layers.1.output"}),  # a star stays inside its part
        ("*.output", {"embed.output"}),
        ("*", {"logits"}),
        (
            "layers.*.attention.*y",
            {"layers.0.attention.query", "layers.1.attention.query"}
            | {"layers.0.attention.key", "layers.1.attention.key"},
        ),
        ("layers.0.**", LAYER_0),
        ("layers.0.**.output", {"layers.0.attention.output", "layers.0.feedforward.output"}),
        ("**.weights", {"layers.0.attention.weights", "layers.1.attention.weights"}),
        ("layers.0|1.attention.heads", {"layers.0.attention.heads", "layers.1.attention.heads"}),
        ("layers.1.attention.query|key", {"layers.1.attention.query", "layers.1.attention.key"}),
        ("layers.1.feed*|att*.output", {"layers.1.feedforward.output", "layers.1.attention.output"}),
    ],
)
def test_patterns(gpt2, pattern, want):
    with trace(gpt2, pattern) as seen:
        gpt2(ids_of())
    assert set(seen) == want


def test_several_patterns_add_up_and_a_tensor_is_kept_once(gpt2):
    with trace(gpt2, "layers.*.output", "layers.0.output", "logits") as seen:
        gpt2(ids_of())
    assert sorted(seen) == ["layers.0.output", "layers.1.output", "logits"]
    assert len(seen) == 3 and len(seen.calls("layers.0.output")) == 1


def test_two_stars_mean_everything(gpt2):
    with trace(gpt2, "**") as seen:
        gpt2(ids_of(), token_type_ids=ids_of())
    assert set(seen) == set(tap_points(gpt2))


@pytest.mark.parametrize("pattern", ["layers.[01].output", "layers.(0).output", "layers.0.outpu.", "", ".", "logits$"])
def test_a_pattern_is_no_regular_expression(gpt2, pattern):
    with pytest.raises(TraceError):
        trace(gpt2, pattern)


def test_eleven_layers_are_told_apart():
    model = family("gpt2").make(
        family("gpt2").config(
            vocab_size=23, hidden_size=6, num_hidden_layers=12, num_attention_heads=1, max_position_embeddings=8
        )
    )
    with trace(model, "layers.1.output", "layers.11.output") as seen:
        model(ids_of())
    assert set(seen) == {"layers.1.output", "layers.11.output"}
    assert not torch.equal(seen["layers.1.output"], seen["layers.11.output"])


# --- what is kept ------------------------------------------------------------------------------------------------


def test_a_trace_is_a_mapping(gpt2):
    with trace(gpt2, "layers.*.attention.weights") as seen:
        gpt2(ids_of())
    assert isinstance(seen, Trace) and len(seen) == 2
    assert list(seen) == ["layers.0.attention.weights", "layers.1.attention.weights"]
    assert "layers.0.attention.weights" in seen and "logits" not in seen and "nonsense" not in seen
    assert seen.get("logits") is None
    assert "layers.1.attention.weights: (2, 3, 5, 5)" in repr(seen)


def test_the_last_call_wins_unless_every_call_is_asked_for(gpt2):
    first, second = ids_of(seed=1), ids_of(seed=2)
    with trace(gpt2, "logits") as last, trace(gpt2, "logits", every=True) as every:
        want = [gpt2(first).logits, gpt2(second).logits]
    assert torch.equal(last["logits"], want[1]) and len(last.calls("logits")) == 1
    assert [torch.equal(a, b) for a, b in zip(every.calls("logits"), want, strict=True)] == [True, True]
    assert torch.equal(every["logits"], want[1])


def test_kept_tensors_carry_the_graph_unless_detached(gpt2):
    for options, carries in (({}, True), ({"detach": True}, False), ({"cpu": True}, False), ({"last": True}, False)):
        with trace(gpt2, "layers.0.output", **options) as seen:
            out = gpt2(ids_of())
        assert seen["layers.0.output"].requires_grad is carries, options
        assert out.logits.requires_grad  # whatever is kept, the model itself stays differentiable


def test_last_keeps_the_last_position_only(gpt2):
    with trace(gpt2, "**") as whole:
        gpt2(ids_of())
    with trace(gpt2, "**", last=True) as seen:
        gpt2(ids_of())
    assert set(seen) == set(whole)
    for name, tensor in seen.items():
        torch.testing.assert_close(tensor, whole[name][..., -1:, :], rtol=1e-4, atol=1e-5)
        assert tensor.untyped_storage().nbytes() == tensor.numel() * 4  # a copy: the rest can be freed


def test_last_leaves_tensors_without_a_time_axis_whole():
    model = small("bert", "sequence-classification")
    with trace(model, "pooled", "logits", last=True) as seen:
        out = model(ids_of())
    assert seen["pooled"].shape == (2, 12) and torch.equal(seen["logits"], out.logits)


def test_cpu_keeps_copies_in_main_memory(gpt2):
    with torch.no_grad(), trace(gpt2, "logits", cpu=True) as seen:
        out = gpt2(ids_of())
    want = out.logits.clone()
    out.logits.fill_(0.0)  # as a sampler may do with its logits
    assert seen["logits"].device.type == "cpu" and torch.equal(seen["logits"], want)


# --- gradients ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["layers.1.attention.weights", "layers.0.attention.scores", "embed.output", "logits"])
def test_gradients_reach_any_kept_tensor(gpt2, name):
    with trace(gpt2, name) as seen:
        loss = gpt2(ids_of(), labels=ids_of()).loss
    (grad,) = torch.autograd.grad(loss, seen[name])
    assert grad.shape == seen[name].shape and grad.isfinite().all() and grad.any()


def test_the_gradient_of_a_later_cached_call_reaches_its_own_keys(gpt2):
    cache = KVCache(2)
    with torch.no_grad():
        gpt2(ids_of(), past_key_values=cache)
    with trace(gpt2, "layers.0.attention.key|value") as seen:
        out = gpt2(ids_of(time=2), past_key_values=cache).logits.square().sum()
    grads = torch.autograd.grad(out, list(seen.values()), allow_unused=True)
    assert all(grad is not None and grad.any() for grad in grads)


# --- replacing ---------------------------------------------------------------------------------------------------


def test_ablating_a_head_is_zeroing_its_columns_of_the_output_matrix(gpt2):
    head, layer = 1, gpt2.stack.layers[1].attention

    def without(z: Tensor) -> Tensor:
        z = z.clone()
        z[:, head] = 0
        return z

    with torch.no_grad():
        plain = gpt2(ids_of()).logits
        with trace(gpt2, replace={"layers.1.attention.heads": without}):
            got = gpt2(ids_of()).logits
        layer.output.weight[:, head * layer.head_dim : (head + 1) * layer.head_dim] = 0
        want = gpt2(ids_of()).logits
    torch.testing.assert_close(got, want)
    assert not torch.allclose(got, plain, atol=1e-3)


def test_a_tensor_may_stand_in(gpt2):
    with trace(gpt2, "layers.0.output") as donor:
        gpt2(ids_of(seed=1))
    patch = donor["layers.0.output"].detach()
    with trace(gpt2, "layers.0.output", replace={"layers.0.output": patch}) as seen:
        got = gpt2(ids_of(seed=2)).logits
    assert torch.equal(seen["layers.0.output"], patch)  # what is kept is what went on
    assert torch.equal(got, gpt2(ids_of(seed=1)).logits)


def test_a_pattern_replaces_each_of_its_tensors(gpt2):
    calls = []

    def spy(z: Tensor) -> Tensor:
        calls.append(tuple(z.shape))
        return torch.zeros_like(z)

    with trace(gpt2, "layers.*.output", "embed.output", replace={"layers.*.attention|feedforward.output": spy}) as seen:
        gpt2(ids_of())
    assert len(calls) == 4
    assert torch.equal(seen["layers.1.output"], seen["embed.output"])  # nothing was added to the residual


@pytest.mark.parametrize("which", ["scores", "weights"])
def test_replacing_scores_or_weights_takes_effect(gpt2, which):
    def uniform(z: Tensor) -> Tensor:
        return torch.zeros_like(z) if which == "scores" else torch.full_like(z, 0.25).tril()

    with trace(gpt2, "layers.0.attention.*", replace={f"layers.0.attention.{which}": uniform}) as seen:
        gpt2(ids_of())
    weights = seen["layers.0.attention.weights"]
    if which == "scores":  # the mask still comes after
        want = torch.ones(TIME, TIME).tril()
        torch.testing.assert_close(weights, (want / want.sum(-1, keepdim=True)).expand_as(weights))
    torch.testing.assert_close(seen["layers.0.attention.heads"], weights @ seen["layers.0.attention.value"])


def test_gradients_flow_into_and_through_a_replacement(gpt2):
    delta = torch.zeros(12, requires_grad=True)
    with trace(gpt2, replace={"layers.0.output": lambda z: z + delta}):
        loss = gpt2(ids_of(), labels=ids_of()).loss
    loss.backward()
    assert delta.grad is not None and delta.grad.any()
    assert gpt2.stack.embed.tokens.weight.grad.any()


def test_a_replacement_takes_on_the_dtype_of_what_it_replaces(gpt2):
    gpt2.bfloat16()
    with trace(gpt2, "layers.0.output", replace={"layers.0.output": torch.zeros(BATCH, TIME, 12)}) as seen:
        gpt2(ids_of())
    assert seen["layers.0.output"].dtype == torch.bfloat16


@pytest.mark.parametrize(
    "new",
    [
        torch.zeros(BATCH, TIME, 13),
        torch.zeros(1, TIME, 12),
        torch.zeros(12),
        lambda z: z[:, :-1],
        lambda z: z[:1],
        lambda z: None,
        lambda z: z.tolist(),
        3.0,
    ],
    ids=["width", "batch of one", "one axis", "shorter", "a row", "nothing", "a list", "a number"],
)
def test_a_replacement_of_another_shape_is_refused(gpt2, new):
    with (
        pytest.raises(InputError, match=r"layers\.0\.output.*(\(2, 5, 12\)|not float)"),
        trace(gpt2, replace={"layers.0.output": new}),
    ):
        gpt2(ids_of())


def test_replacing_a_cached_encoders_keys_does_the_same_at_every_step():
    """The cross-attention's keys are computed once, but a replacement must not pile up on them."""
    model = small("transformer")
    source, target = ids_of(time=SOURCE), ids_of(seed=1)
    with torch.no_grad(), trace(model, replace={"decoder.layers.*.cross_attention.key|value": lambda z: 2 * z + 1}):
        want = model(source, decoder_input_ids=target).logits
        cache = KVCache(2)
        steps = [
            model(source, decoder_input_ids=target[:, n : n + 1], past_key_values=cache).logits for n in range(TIME)
        ]
    torch.testing.assert_close(torch.cat(steps, 1), want, rtol=1e-4, atol=1e-4)


# --- nesting -----------------------------------------------------------------------------------------------------


def test_the_inner_trace_sees_what_the_outer_one_put_in(gpt2):
    plain = gpt2(ids_of())
    with trace(gpt2, "logits") as bare:
        gpt2(ids_of())
    with (
        trace(gpt2, "logits", replace={"logits": lambda z: 2 * z}) as outer,
        trace(gpt2, "logits", replace={"logits": lambda z: z + 1}) as inner,
    ):
        out = gpt2(ids_of())
    assert torch.equal(bare["logits"], plain.logits)
    assert torch.equal(outer["logits"], 2 * plain.logits)
    assert torch.equal(inner["logits"], 2 * plain.logits + 1)  # not 2 · (z + 1)
    assert torch.equal(out.logits, inner["logits"])


def test_an_inner_trace_ends_without_ending_the_outer_one(gpt2):
    with trace(gpt2, "logits", every=True) as outer:
        with trace(gpt2, "logits", every=True) as inner:
            first = gpt2(ids_of()).logits
        second = gpt2(ids_of().flip(1)).logits
    gpt2(ids_of())
    for seen, want in ((inner, [first]), (outer, [first, second])):
        assert all(torch.equal(a, b) for a, b in zip(seen.calls("logits"), want, strict=True))


def test_output_attentions_inside_a_trace_sees_its_replacement(gpt2):
    with trace(gpt2, replace={"layers.0.attention.weights": torch.zeros_like}):
        out = gpt2(ids_of(), output_attentions=True)
    assert not out.attentions[0].any() and out.attentions[1].any()


def test_a_trace_of_a_part_uses_the_parts_own_names(gpt2):
    with trace(gpt2, "layers.1.attention.heads") as whole, trace(gpt2.stack.layers[1], "attention.heads") as part:
        gpt2(ids_of())
    assert torch.equal(whole["layers.1.attention.heads"], part["attention.heads"])


def test_a_trace_watches_its_own_model_only(gpt2):
    other = small("gpt2")
    with trace(gpt2, "logits", replace={"logits": torch.zeros_like}) as seen:
        out = other(ids_of())
    assert len(seen) == 0 and out.logits.any()


def test_an_open_trace_cannot_be_opened_again(gpt2):
    seen = trace(gpt2, "logits")
    with seen:
        with pytest.raises(TraceError, match="already open"), seen:
            pass
        gpt2(ids_of())
    assert len(seen) == 1


def test_what_holds_a_model_can_be_traced(gpt2):
    class Loaded:
        model = gpt2

    with trace(Loaded(), "logits") as seen:
        gpt2(ids_of())
    assert "logits" in seen
    with pytest.raises(InputError, match="str"):
        trace("gpt2", "logits")


# --- errors ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong,near",
    [
        ("layers.0.attention.weight", "layers.*.attention.weights"),
        ("layers.*.atention.weights", "layers.*.attention.weights"),
        ("layers.1.feed_forward.output", "layers.*.feedforward.output"),
        ("embed.position", "embed.positions"),
        ("logit", "logits"),
        ("final_norm", "final.norm"),
    ],
)
def test_an_unknown_name_lists_near_ones(gpt2, wrong, near):
    with pytest.raises(TraceError, match="tap_points") as caught:
        trace(gpt2, wrong)
    assert near in str(caught.value) and wrong in str(caught.value)
    with pytest.raises(TraceError) as caught:
        trace(gpt2, replace={wrong: torch.zeros_like})
    assert near in str(caught.value)
    with trace(gpt2, "logits") as seen:
        gpt2(ids_of())
    with pytest.raises(TraceError) as caught:
        seen[wrong]
    assert near in str(caught.value)


def test_a_layer_that_is_not_there_says_how_many_there_are(gpt2):
    with pytest.raises(TraceError, match="0 to 1"):
        trace(gpt2, "layers.2.output")


def test_a_name_that_was_not_asked_for_says_so(gpt2):
    with trace(gpt2, "logits") as seen:
        gpt2(ids_of())
    with pytest.raises(TraceError, match="not asked"):
        seen["layers.0.output"]
    assert issubclass(TraceError, KeyError)


def test_a_name_that_was_not_computed_says_so(gpt2):
    with trace(gpt2, "logits", "embed.segments") as seen:
        pass
    with pytest.raises(TraceError, match="not computed"):
        seen["logits"]
    with trace(gpt2, "embed.segments") as seen:
        gpt2(ids_of())  # without token_type_ids there are no segments
    with pytest.raises(TraceError, match="not computed"):
        seen["embed.segments"]


@pytest.mark.parametrize("where", ["in the block", "in a replacement", "in the model"])
def test_an_error_leaves_no_trace_open(gpt2, where):
    def fail(_z: Tensor) -> Tensor:
        raise KeyboardInterrupt

    replace = {"layers.0.output": fail} if where == "in a replacement" else None
    with pytest.raises((KeyboardInterrupt, InputError)), trace(gpt2, "logits"), trace(gpt2, replace=replace):
        if where == "in the block":
            raise KeyboardInterrupt
        gpt2(ids_of() if where == "in a replacement" else torch.tensor([[99]]))
    assert open_traces() == []
    want = gpt2(ids_of()).logits
    with trace(gpt2, "logits") as seen:
        gpt2(ids_of())
    assert torch.equal(seen["logits"], want)


def test_output_attentions_leaves_no_trace_open_when_the_model_fails(gpt2):
    with pytest.raises(InputError):
        gpt2(torch.tensor([[99]]), output_attentions=True, output_hidden_states=True)
    assert open_traces() == []


# --- threads -----------------------------------------------------------------------------------------------------


def in_thread(work) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def test_threads_do_not_see_each_others_traces(gpt2):
    plain = {seed: gpt2(ids_of(seed=seed)).logits.detach() for seed in range(3)}
    both_open, both_ran = threading.Barrier(3, timeout=30), threading.Barrier(3, timeout=30)
    results: dict[int, tuple] = {}

    def watcher(seed: int) -> None:
        with trace(gpt2, "logits", "**.weights", every=True, replace={"logits": lambda z: z + 10 * seed}) as seen:
            both_open.wait()
            out = gpt2(ids_of(seed=seed)).logits
            both_ran.wait()
        results[seed] = (seen, out.detach())

    threads = [in_thread(lambda seed=seed: watcher(seed)) for seed in (1, 2)]
    both_open.wait()
    assert torch.equal(gpt2(ids_of(seed=0)).logits, plain[0])  # a thread without a trace: nothing is replaced
    both_ran.wait()
    for thread in threads:
        thread.join(30)
    for seed in (1, 2):
        seen, out = results[seed]
        torch.testing.assert_close(out, plain[seed] + 10 * seed, rtol=1e-5, atol=1e-5)
        assert len(seen) == 3 and all(len(seen.calls(name)) == 1 for name in seen)
        assert torch.equal(seen["logits"], out)


def test_a_trace_that_ends_in_another_thread_does_not_hide_this_one(gpt2, monkeypatch):
    """The list of open traces changes under the feet of whoever walks it: nobody may be skipped."""
    opened, leave, left = threading.Event(), threading.Event(), threading.Event()

    def other() -> None:
        with trace(gpt2, "logits"):
            opened.set()
            leave.wait(30)
        left.set()

    thread = in_thread(other)
    assert opened.wait(30)
    real, here = threading.get_ident, threading.get_ident()

    def ident_while_the_other_leaves() -> int:
        if real() == here:
            leave.set()  # the first time that this thread asks who it is, the other one goes
            assert left.wait(30)
        return real()

    with trace(gpt2, "embed.tokens") as seen:
        monkeypatch.setattr(threading, "get_ident", ident_while_the_other_leaves)
        gpt2.stack.embed(ids_of(), torch.arange(TIME)[None])
        monkeypatch.undo()
    leave.set()
    thread.join(30)
    assert list(seen) == ["embed.tokens"]


# --- torch.compile -----------------------------------------------------------------------------------------------


class Graphs:
    """A compiler that keeps the graphs it is given, and counts how often they run."""

    def __init__(self) -> None:
        self.graphs: list[list[tuple[str, str]]] = []
        self.runs = 0

    def __call__(self, graph_module: torch.fx.GraphModule, _inputs: list[Tensor]):
        nodes = graph_module.graph.nodes
        self.graphs.append([(node.op, str(node.target)) for node in nodes if node.op.startswith("call")])

        def run(*args):
            self.runs += 1
            return graph_module.forward(*args)

        return run


@pytest.fixture
def graphs():
    torch._dynamo.reset()
    torch.compiler.set_stance("default")  # whatever another test has left behind
    yield Graphs()
    torch.compiler.set_stance("default")
    torch._dynamo.reset()


@pytest.mark.parametrize("with_mask", [False, True], ids=["", "padding"])
def test_taps_cost_nothing_in_a_compiled_graph(gpt2, graphs, monkeypatch, with_mask):
    given = {"attention_mask": torch.tensor([[0, 0, 1, 1, 1], [1] * 5])} if with_mask else {}
    want = gpt2(ids_of(), **given).logits
    got = torch.compile(gpt2, backend=graphs, fullgraph=True)(ids_of(), **given).logits
    torch.testing.assert_close(got, want)

    untapped = Graphs()
    heads = sys.modules["clearhead.models.heads"]
    for module in (attention, block, embedding, feedforward, stack, heads):
        monkeypatch.setattr(module, "tap", lambda _module, _name, tensor: tensor)
    monkeypatch.setattr(attention, "is_watched", lambda *_: False)
    torch._dynamo.reset()
    torch.compile(gpt2, backend=untapped, fullgraph=True)(ids_of(), **given)
    assert len(graphs.graphs) == len(untapped.graphs) == 1
    assert len(graphs.graphs[0]) > 20
    assert graphs.graphs == untapped.graphs


def test_tap_hands_back_the_very_tensor_when_nobody_looks(gpt2):
    tensor = torch.zeros(3)
    assert tap(gpt2, "logits", tensor) is tensor


@pytest.mark.parametrize("how", ["torch.compile(model)", "model.compile()"])
def test_a_compiled_model_is_traced_by_the_same_names_and_stays_compiled(gpt2, graphs, how):
    if how == "model.compile()":
        compiled = gpt2
        eager = gpt2(ids_of()).logits
        gpt2.compile(backend=graphs, fullgraph=True)
    else:
        compiled = torch.compile(gpt2, backend=graphs, fullgraph=True)
        eager = gpt2(ids_of()).logits
    torch.testing.assert_close(compiled(ids_of()).logits, eager)
    assert (graphs.runs, len(graphs.graphs)) == (1, 1)
    assert set(tap_points(compiled)) == set(tap_points(small("gpt2")))

    with trace(compiled, "**", replace={"layers.0.attention.weights": torch.zeros_like}) as seen:
        changed = compiled(ids_of()).logits
    assert set(seen) == set(tap_points(small("gpt2"))) - {"embed.segments"}
    assert not seen["layers.0.attention.weights"].any() and torch.equal(seen["logits"], changed)
    assert not torch.allclose(changed, eager, atol=1e-3)
    assert graphs.runs == 1  # the trace ran eagerly

    torch.testing.assert_close(compiled(ids_of()).logits, eager)
    assert (graphs.runs, len(graphs.graphs)) == (2, 1)  # the same graph, used again


def test_a_compiled_part_of_a_model_is_traced_by_the_same_names(gpt2, graphs):
    want = gpt2(ids_of()).logits
    names = set(tap_points(gpt2))
    for n, layer in enumerate(gpt2.stack.layers):
        gpt2.stack.layers[n] = torch.compile(layer, backend=graphs)
    torch.testing.assert_close(gpt2(ids_of()).logits, want)
    assert graphs.runs == 2
    assert set(tap_points(gpt2)) == names
    with trace(gpt2, "**") as seen:
        gpt2(ids_of())
    assert set(seen) == names - {"embed.segments"}
    assert graphs.runs == 2


def test_a_model_in_a_wrapper_keeps_its_names(gpt2):
    assert set(tap_points(nn.DataParallel(gpt2))) == set(tap_points(gpt2))


def test_a_compiled_model_still_gives_its_attentions(gpt2, graphs):
    want = gpt2(ids_of(), output_attentions=True, output_hidden_states=True)
    got = torch.compile(gpt2, backend=graphs)(ids_of(), output_attentions=True, output_hidden_states=True)
    for ours, theirs in zip(got.attentions + got.hidden_states, want.attentions + want.hidden_states, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_traces_that_overlap_in_two_threads_give_compiled_code_back(gpt2, graphs):
    """First in, first out, as threads may end: the second one still sees, and afterwards nothing stays eager."""
    gpt2.compile(backend=graphs, fullgraph=True)
    gpt2(ids_of())
    opened, closed = threading.Event(), threading.Event()
    seen_there: list[str] = []

    def other() -> None:
        with trace(gpt2, "logits") as seen:
            opened.set()
            closed.wait(30)
            gpt2(ids_of())
        seen_there.extend(seen)

    with trace(gpt2, "logits"):
        thread = in_thread(other)
        assert opened.wait(30)
    closed.set()
    thread.join(30)
    assert seen_there == ["logits"]
    runs = graphs.runs
    gpt2(ids_of())
    assert graphs.runs == runs + 1
