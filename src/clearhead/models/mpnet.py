"""MPNet: RoBERTa without segments, whose layers also share a table of distances, as T5's do."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from clearhead.models import bert, roberta
from clearhead.models.checkpoint import CheckpointMap, Entry, one, renamed
from clearhead.models.family import Family
from clearhead.models.stack_model import TokenModel
from clearhead.nn import RelativeBuckets, Stack

PADDING = 1  # positions count from after it, whatever pad_token_id says


@dataclass(kw_only=True)
class MPNetConfig(roberta.RobertaConfig):
    family: ClassVar[str] = "mpnet"
    fixed: ClassVar[dict[str, tuple[Any, ...]]] = {
        # The published model works with these alone, whatever its configuration says.
        "relative_attention_num_buckets": (32,),
        "relative_attention_max_distance": (128,),
        # BERT's options, which it does not have.
        "type_vocab_size": (0,),
        "position_embedding_type": ("absolute",),
        "classifier_dropout": (None,),
        "is_decoder": (False,),
    }

    vocab_size: int = 30527
    type_vocab_size: int = 0
    relative_attention_num_buckets: int = 32


def build(config: MPNetConfig, task: str) -> TokenModel:
    stack = Stack(
        bert.embed(config, padding_position=PADDING),
        [bert.block(config) for _ in range(config.num_hidden_layers)],
        causal=False,
        position_bias=RelativeBuckets(config.relative_attention_num_buckets, config.num_attention_heads),
    )
    return TokenModel(config, stack, roberta.head(config, task))


def _entries(config: MPNetConfig, task: str) -> Iterator[Entry]:
    yield one("stack.position_bias.table.weight", "encoder.relative_attention_bias.weight")
    yield from renamed(
        roberta.entries(config, task),
        (r"attention\.self\.(\w)\w+", r"attention.attn.\1"),  # query -> q
        (r"attention\.output\.dense", "attention.attn.o"),
        (r"attention\.output\.LayerNorm", "attention.LayerNorm"),
    )


def checkpoint_map(config: MPNetConfig, task: str) -> CheckpointMap:
    return bert.map_of(config, _entries(config, task), prefix="mpnet.")


FAMILY = Family(
    name="mpnet",
    title="MPNet",
    config=MPNetConfig,
    build=build,
    init=bert.init,
    checkpoint_map=checkpoint_map,
    architectures={task: name for task, name in roberta.architectures("MPNet").items() if task != "causal-lm"},
    default_task="masked-lm",
    parent="roberta",
    presets={"mpnet-base": {"max_position_embeddings": 514, "layer_norm_eps": 1e-5}},
)
