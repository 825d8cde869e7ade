"""BigBird: BERT for long texts. A block of text sees a few others (near, first, last, random), so cost is linear.

Two things that the published code computes are refused rather than followed. As a decoder with cross-attention, its
self-attention reads the encoder too, and answers differ with and without a cache. As a decoder with block-sparse
attention, a long text sees its own future; set attention_type to original_full there.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearhead.errors import ConfigError, InputError
from clearhead.models import bert
from clearhead.models.checkpoint import CheckpointMap, Entry, linear, renamed
from clearhead.models.family import Family
from clearhead.models.heads import ChoiceHead, Head, HeadInputs, SequenceHead, SpanHead, Summary, span_loss
from clearhead.models.output import Output
from clearhead.models.stack_model import TokenModel
from clearhead.nn import Activation, Attention, Block, LayerNorm, LearnedPositions, Stack, TokenEmbedder
from clearhead.nn.block_sparse import BlockSparseAttention
from clearhead.nn.linear import Linear
from clearhead.nn.stack import shape_of


@dataclass(kw_only=True)
class BigBirdConfig(bert.BertConfig):
    family: ClassVar[str] = "big_bird"

    vocab_size: int = 50358
    hidden_act: str = "gelu_new"
    max_position_embeddings: int = 4096
    attention_type: Literal["block_sparse", "original_full"] = "block_sparse"
    block_size: int = 64
    num_random_blocks: int = 3
    use_bias: bool = True  # of queries, keys and values
    rescale_embeddings: bool = False
    bos_token_id: int | None = 1
    eos_token_id: int | list[int] | None = 2
    sep_token_id: int | None = 66

    def __post_init__(self) -> None:
        super().__post_init__()
        self._at_least(1, "block_size")
        self._at_least(0, "num_random_blocks")
        if self.position_embedding_type != "absolute":
            raise ConfigError(f"position_embedding_type is {self.position_embedding_type!r}; BigBird's are absolute.")
        if self.add_cross_attention:
            raise ConfigError(
                "add_cross_attention is true, which Clearhead does not implement for BigBird: in the published code "
                "its self-attention then reads the encoder as well, and a cache changes the answer."
            )


def attention(config: BigBirdConfig, number: int) -> Attention:
    """Of layer `number`, which is also what its random blocks are drawn from."""
    width, heads, dropout = config.hidden_size, config.num_attention_heads, config.attention_probs_dropout_prob
    if config.attention_type == "original_full":
        return Attention(width, heads, bias=config.use_bias, out_bias=True, dropout=dropout)
    return BlockSparseAttention(
        width,
        heads,
        block_size=config.block_size,
        random_blocks=config.num_random_blocks,
        seed=number,
        max_positions=config.max_position_embeddings,
        bias=config.use_bias,
        out_bias=True,
        dropout=dropout,
    )


def block(config: BigBirdConfig, number: int) -> Block:
    made = bert.block(config)
    made.attention = attention(config, number)
    return made


def build(config: BigBirdConfig, task: str) -> TokenModel:
    width = config.hidden_size
    embed = TokenEmbedder(
        nn.Embedding(config.vocab_size, width, padding_idx=config.pad_token_id),
        LearnedPositions(config.max_position_embeddings, width),
        nn.Embedding(config.type_vocab_size, width) if config.type_vocab_size else None,
        norm=LayerNorm(width, eps=config.layer_norm_eps),
        dropout=config.hidden_dropout_prob,
        scale=width**0.5 if config.rescale_embeddings else 1.0,
        norm_last=True,
    )
    stack = Stack(embed, [block(config, n) for n in range(config.num_hidden_layers)], causal=config.is_decoder)
    kind = ReadingModel if task == "question-answering" else TokenModel
    return kind(config, stack, head(config, task))


def head(config: BigBirdConfig, task: str) -> Head:
    if task == "sequence-classification":
        dropout = config.hidden_dropout_prob if config.classifier_dropout is None else config.classifier_dropout
        return SequenceHead(config, Summary(config, activation=config.hidden_act, dropout=dropout), dropout)
    if task == "multiple-choice":
        return ChoiceHead(Summary(config), config.hidden_size, config.hidden_dropout_prob)
    if task == "question-answering":
        return ReadingHead(config)
    return bert.head(config, task)


class ReadingHead(SpanHead):
    """Where the answer starts and ends, after a feed-forward layer of the head's own."""

    def __init__(self, config: BigBirdConfig) -> None:
        super().__init__(config.hidden_size)
        self.up = Linear(config.hidden_size, config.intermediate_size)
        self.activation = Activation(config.hidden_act)
        self.down = Linear(config.intermediate_size, config.hidden_size)
        self.norm = LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = config.hidden_dropout_prob

    def forward(self, hidden: Tensor, inputs: HeadInputs) -> Output:
        projected = self.down(self.activation(self.up(F.dropout(hidden, self.dropout, self.training))))
        return super().forward(self.norm(F.dropout(projected, self.dropout, self.training) + hidden), inputs)


class ReadingModel(TokenModel):
    """Answers never lie in the question: [CLS] question [SEP] text [SEP]. Its scores fall by a million, but [CLS]'s.

    Where no segments are inputs, the question is segment 0 and the rest segment 1. The tap `logits` holds the scores
    before the question is taken out.
    """

    def forward(  # type: ignore[override]
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        *,
        question_lengths: Tensor | None = None,  # (batch,) or (batch, 1), with [CLS] and [SEP]; default: found by [SEP]
        start_positions: Tensor | None = None,
        end_positions: Tensor | None = None,
        **more: Any,
    ) -> Output:
        shape_of(input_ids, more.get("inputs_embeds"))
        if question_lengths is None and input_ids is not None:
            if self.config.sep_token_id is None:
                raise InputError("The question ends at the first separator: set config.sep_token_id.")
            question_lengths = (input_ids == self.config.sep_token_id).int().argmax(-1) + 1
        question = None
        if question_lengths is not None:
            inputs = input_ids if input_ids is not None else more["inputs_embeds"]
            question = torch.arange(inputs.shape[1], device=inputs.device) < question_lengths.view(-1, 1)
            token_type_ids = (~question).long() if token_type_ids is None else token_type_ids
        out: Output = super().forward(input_ids, attention_mask, token_type_ids, **more)
        assert out.start_logits is not None and out.end_logits is not None
        if question is not None:
            question[:, 0] = False
            out.start_logits, out.end_logits = (x - question * 1e6 for x in (out.start_logits, out.end_logits))
        out.loss = span_loss(out.start_logits, out.end_logits, start_positions, end_positions)
        return out


def entries(config: BigBirdConfig, task: str) -> Iterator[Entry]:
    for entry in bert.body_entries(config):
        if config.use_bias or not entry.ours[0].endswith(("query.bias", "key.bias", "value.bias")):
            yield entry
    if task == "sequence-classification":
        yield from linear("head.pooler.dense", "classifier.dense", in_body=False)
        yield from linear("head.output", "classifier.out_proj", in_body=False)
    elif task == "question-answering":
        yield from linear("head.up", "qa_classifier.intermediate.dense", in_body=False)
        yield from linear("head.down", "qa_classifier.output.dense", in_body=False)
        yield from linear("head.norm", "qa_classifier.output.LayerNorm", in_body=False)
        yield from linear("head.output", "qa_classifier.qa_outputs", in_body=False)
    else:
        # BigBird's pooler is the matrix itself
        yield from renamed(bert.head_entries(config, task), (r"pooler\.dense", "pooler"))


def checkpoint_map(config: BigBirdConfig, task: str) -> CheckpointMap:
    return bert.map_of(config, entries(config, task), prefix="bert.")


FAMILY = Family(
    name="big_bird",
    title="BigBird",
    config=BigBirdConfig,
    build=build,
    init=bert.init,
    checkpoint_map=checkpoint_map,
    architectures={
        "masked-lm": "BigBirdForMaskedLM",
        "pretraining": "BigBirdForPreTraining",
        "sequence-classification": "BigBirdForSequenceClassification",
        "token-classification": "BigBirdForTokenClassification",
        "question-answering": "BigBirdForQuestionAnswering",
        "multiple-choice": "BigBirdForMultipleChoice",
        "causal-lm": "BigBirdForCausalLM",
        "features": "BigBirdModel",
    },
    default_task="masked-lm",
    parent="bert",
    presets={
        "bigbird-roberta-base": {},
        "bigbird-roberta-large": {
            "hidden_size": 1024,
            "num_hidden_layers": 24,
            "num_attention_heads": 16,
            "intermediate_size": 4096,
        },
    },
)
