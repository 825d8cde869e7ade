"""XLM: a post-norm encoder for many languages, with an embedding for each; padding is set to zero after every layer.

Where transformers' XLM reads causally, it lets texts padded on the left see their padding; here it is hidden.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearhead.errors import ConfigError
from clearhead.models.checkpoint import CheckpointMap, Entry, layers, linear, one
from clearhead.models.family import Family
from clearhead.models.heads import (
    ChoiceHead,
    FeaturesHead,
    Head,
    HeadInputs,
    LanguageHead,
    SpanHead,
    Summary,
    TokenHead,
    sequence_loss,
)
from clearhead.models.output import Output
from clearhead.models.stack_model import TokenModel
from clearhead.models.token_config import TokenConfig
from clearhead.nn import Attention, Block, FeedForward, LayerNorm, LearnedPositions, Stack, TokenEmbedder, sinusoidal
from clearhead.nn.init import init_normal
from clearhead.nn.linear import Linear
from clearhead.nn.tracing import tap


@dataclass(kw_only=True)
class XLMConfig(TokenConfig):
    family: ClassVar[str] = "xlm"
    published: ClassVar[dict[str, str]] = {
        "hidden_size": "emb_dim",
        "num_hidden_layers": "n_layers",
        "num_attention_heads": "n_heads",
    }
    also_spelt: ClassVar[dict[str, str]] = {
        "n_words": "vocab_size",
        "bos_index": "bos_token_id",
        "eos_index": "eos_token_id",
        "pad_index": "pad_token_id",
    }
    # The tokenizer's side; leftovers of the training code; options of the beam-search answer head (start_n_top,
    # end_n_top), of transformers' generate (mask_token_id, lang_id) and of the adaptive softmax, which is refused.
    inert: ClassVar[frozenset[str]] = frozenset(
        "id2lang lang2id unk_index mask_index max_vocab min_count same_enc_dec start_n_top end_n_top mask_token_id "
        "lang_id asm_cutoffs asm_div_value is_decoder add_cross_attention".split()
    )
    fixed: ClassVar[dict[str, tuple[Any, ...]]] = {
        "asm": (False,),
        "is_encoder": (True,),
        "share_inout_emb": (True,),
    }

    vocab_size: int = 30145
    hidden_size: int = 2048
    num_hidden_layers: int = 12
    num_attention_heads: int = 16
    dropout: float = 0.1
    attention_dropout: float = 0.1
    gelu_activation: bool = True  # else relu
    sinusoidal_embeddings: bool = False  # how the table of positions starts; files hold it either way
    causal: bool = False
    n_langs: int = 1
    use_lang_emb: bool = True
    max_position_embeddings: int = 512
    embed_init_std: float = 2048**-0.5
    init_std: float = 0.02
    layer_norm_eps: float = 1e-12
    summary_type: Literal["first", "last", "mean", "cls_index"] = "first"
    summary_use_proj: bool = True
    summary_proj_to_labels: bool = True
    summary_activation: str | None = None
    summary_first_dropout: float = 0.1
    summary_last_dropout: float = 0.0
    bos_token_id: int | None = 0
    eos_token_id: int | list[int] | None = 1
    pad_token_id: int | None = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        self._at_least(1, "max_position_embeddings", "n_langs")
        self._probabilities("dropout", "attention_dropout", "summary_first_dropout", "summary_last_dropout")
        self._divides(self.hidden_size, self.num_attention_heads)
        self._padding_within(self.vocab_size)

    @property
    def knows_languages(self) -> bool:
        return self.use_lang_emb and self.n_langs > 1


class XLM(TokenModel):
    """`lengths` is another way to say how much of each text is real; without it or a mask, padding is counted off."""

    def forward(  # type: ignore[override]
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        *more: Any,
        lengths: Tensor | None = None,  # (batch,)
        **options: Any,
    ) -> Output:
        tokens = input_ids if input_ids is not None else options.get("inputs_embeds")
        pad = self.config.pad_token_id
        if attention_mask is None and isinstance(tokens, Tensor) and options.get("past_key_values") is None:
            if lengths is None and input_ids is not None and pad is not None:
                lengths = (input_ids != pad).sum(-1)
            if lengths is not None:
                time = tokens.shape[-1 if input_ids is not None else -2]
                attention_mask = torch.arange(time, device=tokens.device) < lengths[..., None]
        return super().forward(input_ids, attention_mask, *more, **options)


class LabelSummary(Summary):
    """A text's vector, brought down to a number per label."""

    def __init__(self, config: XLMConfig) -> None:
        if not (config.summary_use_proj and config.summary_proj_to_labels):
            raise ConfigError(
                "This head needs summary_use_proj and summary_proj_to_labels: there is no other matrix for the labels."
            )
        tokens: dict[str, Any] = {"first": "first", "mean": "mean"}
        super().__init__(
            config,
            tokens.get(config.summary_type, "final"),
            config.summary_activation or "linear",
            config.summary_first_dropout,
        )
        self.dense = Linear(config.hidden_size, config.num_labels)
        self.last_dropout = config.summary_last_dropout

    def forward(self, hidden: Tensor, inputs: HeadInputs) -> Tensor:
        return F.dropout(super().forward(hidden, inputs), self.last_dropout, self.training)


class LabelHead(Head):
    """One answer for the whole text: its summary is the answer."""

    answers = "label"
    taps = ("logits",)

    def __init__(self, config: XLMConfig) -> None:
        super().__init__()
        self.config = config
        self.pooler = LabelSummary(config)

    def forward(self, hidden: Tensor, inputs: HeadInputs) -> Output:
        logits = tap(self, "logits", self.pooler(hidden, inputs))
        return Output(logits=logits, loss=sequence_loss(logits, inputs.labels, self.config))


def block(config: XLMConfig) -> Block:
    width, eps = config.hidden_size, config.layer_norm_eps
    return Block(
        Attention(width, config.num_attention_heads, dropout=config.attention_dropout),
        FeedForward(width, 4 * width, "gelu" if config.gelu_activation else "relu"),
        attention_norm=LayerNorm(width, eps=eps),
        feedforward_norm=LayerNorm(width, eps=eps),
        placement="post",
        dropout=config.dropout,
    )


def build(config: XLMConfig, task: str) -> XLM:
    width = config.hidden_size
    stack = Stack(
        TokenEmbedder(
            nn.Embedding(config.vocab_size, width, padding_idx=config.pad_token_id),
            LearnedPositions(config.max_position_embeddings, width),
            segments="tokens",
            languages=nn.Embedding(config.n_langs, width) if config.knows_languages else None,
            norm=LayerNorm(width, eps=config.layer_norm_eps),
            dropout=config.dropout,
        ),
        [block(config) for _ in range(config.num_hidden_layers)],
        causal=config.causal,
        blank_padding="layers",
    )
    return XLM(config, stack, head(config, task))


def head(config: XLMConfig, task: str) -> Head:
    width = config.hidden_size
    if task == "masked-lm":
        return LanguageHead(width, config.vocab_size, bias=True, shift=False)
    if task == "sequence-classification":
        return LabelHead(config)
    if task == "token-classification":
        return TokenHead(width, config.num_labels, config.dropout)
    if task == "question-answering":
        return SpanHead(width)
    if task == "multiple-choice":
        return ChoiceHead(LabelSummary(config), config.num_labels, 0.0)
    return FeaturesHead()


def init(config: XLMConfig, module: nn.Module) -> None:
    init_normal(module, config.init_std)
    for part in module.modules():
        if isinstance(part, nn.Embedding):
            nn.init.normal_(part.weight, std=config.embed_init_std)
            with torch.no_grad():
                if part.padding_idx is not None:
                    part.weight[part.padding_idx].zero_()
                if isinstance(part, LearnedPositions) and config.sinusoidal_embeddings:
                    part.weight.copy_(sinusoidal(*part.weight.shape))


def checkpoint_map(config: XLMConfig, task: str) -> CheckpointMap:
    return CheckpointMap(
        tuple(_entries(config, task)), prefix="transformer.", skipped=(r"(transformer\.)?position_ids",)
    )


def _entries(config: XLMConfig, task: str) -> Iterator[Entry]:
    ours = "stack.layers.{n}"
    layer = [
        *linear(f"{ours}.attention.query", "attentions.{n}.q_lin"),
        *linear(f"{ours}.attention.key", "attentions.{n}.k_lin"),
        *linear(f"{ours}.attention.value", "attentions.{n}.v_lin"),
        *linear(f"{ours}.attention.output", "attentions.{n}.out_lin"),
        *linear(f"{ours}.attention_norm", "layer_norm1.{n}"),
        *linear(f"{ours}.feedforward.up", "ffns.{n}.lin1"),
        *linear(f"{ours}.feedforward.down", "ffns.{n}.lin2"),
        *linear(f"{ours}.feedforward_norm", "layer_norm2.{n}"),
    ]
    yield one("stack.embed.tokens.weight", "embeddings.weight")
    yield one("stack.embed.positions.weight", "position_embeddings.weight")
    if config.knows_languages:
        yield one("stack.embed.languages.weight", "lang_embeddings.weight")
    yield from linear("stack.embed.norm", "layer_norm_emb")
    yield from layers(config.num_hidden_layers, layer)
    if task == "masked-lm":
        tied_to = "stack.embed.tokens.weight" if config.tie_word_embeddings else None
        yield Entry(("head.output.weight",), ("pred_layer.proj.weight",), in_body=False, tied_to=tied_to)
        yield one("head.output.bias", "pred_layer.proj.bias", in_body=False)
    elif task in ("sequence-classification", "multiple-choice"):
        yield from linear("head.pooler.dense", "sequence_summary.summary", in_body=False)
        if task == "multiple-choice":
            yield from linear("head.output", "logits_proj", in_body=False)
    elif task == "token-classification":
        yield from linear("head.output", "classifier", in_body=False)
    elif task == "question-answering":
        yield from linear("head.output", "qa_outputs", in_body=False)


_SMALL = {"hidden_size": 1024, "num_hidden_layers": 6, "num_attention_heads": 8}
_WIDE = {"hidden_size": 1280, "num_hidden_layers": 16, "num_attention_heads": 16}

FAMILY = Family(
    name="xlm",
    title="XLM",
    config=XLMConfig,
    build=build,
    init=init,
    checkpoint_map=checkpoint_map,
    architectures={
        "masked-lm": "XLMWithLMHeadModel",
        "sequence-classification": "XLMForSequenceClassification",
        "token-classification": "XLMForTokenClassification",
        "question-answering": "XLMForQuestionAnsweringSimple",
        "multiple-choice": "XLMForMultipleChoice",
        "features": "XLMModel",
    },
    default_task="masked-lm",
    parent="bert",
    presets={
        "xlm-mlm-en-2048": {},
        "xlm-mlm-ende-1024": {**_SMALL, "vocab_size": 64699, "n_langs": 2},
        "xlm-mlm-enfr-1024": {**_SMALL, "vocab_size": 64139, "n_langs": 2},
        "xlm-mlm-enro-1024": {**_SMALL, "vocab_size": 64592, "n_langs": 2},
        "xlm-mlm-xnli15-1024": {**_SMALL, "num_hidden_layers": 12, "vocab_size": 95000, "n_langs": 15},
        "xlm-mlm-17-1280": {**_WIDE, "vocab_size": 200000, "n_langs": 17, "use_lang_emb": False},
        "xlm-mlm-100-1280": {**_WIDE, "vocab_size": 200000, "n_langs": 100, "use_lang_emb": False},
    },
)
