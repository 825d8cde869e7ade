"""XLM-RoBERTa-XL: XLM-RoBERTa made so large that the norms had to move: before each sublayer, and one at the end."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from clearhead.models import bert, roberta
from clearhead.models.checkpoint import CheckpointMap, Entry, linear, renamed
from clearhead.models.family import Family
from clearhead.models.stack_model import TokenModel
from clearhead.nn import LayerNorm, Stack


@dataclass(kw_only=True)
class XLMRobertaXLConfig(roberta.RobertaConfig):
    family: ClassVar[str] = "xlm-roberta-xl"

    vocab_size: int = 250880
    hidden_size: int = 2560
    num_hidden_layers: int = 36
    num_attention_heads: int = 32
    intermediate_size: int = 10240
    max_position_embeddings: int = 514
    type_vocab_size: int = 1
    layer_norm_eps: float = 1e-5


def build(config: XLMRobertaXLConfig, task: str) -> TokenModel:
    stack = Stack(
        bert.embed(config, norm=False, padding_position=config.pad_token_id),
        [bert.block(config, placement="pre") for _ in range(config.num_hidden_layers)],
        LayerNorm(config.hidden_size, eps=config.layer_norm_eps),
        causal=config.is_decoder,
    )
    return TokenModel(config, stack, roberta.head(config, task))


def checkpoint_map(config: XLMRobertaXLConfig, task: str) -> CheckpointMap:
    return bert.map_of(config, _entries(config, task), prefix="roberta.")


def _entries(config: XLMRobertaXLConfig, task: str) -> Iterator[Entry]:
    yield from renamed(
        (entry for entry in roberta.entries(config, task) if not entry.ours[0].startswith("stack.embed.norm")),
        (r"attention\.output\.LayerNorm", "attention.self_attn_layer_norm"),
        (r"(layer\.\d+)\.output\.LayerNorm", r"\1.LayerNorm"),
    )
    yield from linear("stack.final_norm", "encoder.LayerNorm")


FAMILY = Family(
    name="xlm-roberta-xl",
    title="XLM-RoBERTa-XL",
    config=XLMRobertaXLConfig,
    build=build,
    init=bert.init,
    checkpoint_map=checkpoint_map,
    architectures=roberta.architectures("XLMRobertaXL"),
    default_task="masked-lm",
    parent="xlm-roberta",
    presets={
        "xlm-roberta-xl": {},
        "xlm-roberta-xxl": {"hidden_size": 4096, "num_hidden_layers": 48, "intermediate_size": 16384},
    },
)
