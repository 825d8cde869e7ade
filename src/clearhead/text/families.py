"""What the name of a tokenizer class or model type says: default special tokens, model inputs and file layout.

Files such as vocab.json say nothing about how text is cut or wrapped. The class name in tokenizer_config.json
does, or else the model type in config.json.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

_IDS_AND_MASK = ("input_ids", "attention_mask")
_WITH_TYPES = ("input_ids", "token_type_ids", "attention_mask")
_BERT_TOKENS = {
    "unk_token": "[UNK]",
    "sep_token": "[SEP]",
    "pad_token": "[PAD]",
    "cls_token": "[CLS]",
    "mask_token": "[MASK]",
}
_DEBERTA_TOKENS = {**_BERT_TOKENS, "bos_token": "[CLS]", "eos_token": "[SEP]"}
_ROBERTA_TOKENS = {
    "bos_token": "<s>",
    "eos_token": "</s>",
    "unk_token": "<unk>",
    "sep_token": "</s>",
    "pad_token": "<pad>",
    "cls_token": "<s>",
    "mask_token": "<mask>",
}


@dataclass(frozen=True)
class Family:
    """One kind of tokenizer.

    legacy   the older vocabulary file it can be rebuilt from, if any
    missing  what the older files lack, where nothing can rebuild it
    settings what tokenizer_config.json means where it is silent
    like_roberta   WordPiece between <s> and </s>, rather than [CLS] and [SEP]
    """

    name: str
    legacy: str | None
    tokens: Mapping[str, str]
    inputs: tuple[str, ...] = _IDS_AND_MASK
    classes: tuple[str, ...] = ()
    model_types: tuple[str, ...] = field(default=())
    missing: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    like_roberta: bool = False


FAMILIES = (
    Family(
        "bert",
        "vocab.txt",
        _BERT_TOKENS,
        _WITH_TYPES,
        ("BertTokenizer", "ElectraTokenizer", "MobileBertTokenizer", "SqueezeBertTokenizer", "ConvBertTokenizer"),
        ("bert", "electra", "mobilebert", "squeezebert", "convbert", "layoutlm", "megatron-bert", "visual_bert"),
    ),
    Family("distilbert", "vocab.txt", _BERT_TOKENS, _IDS_AND_MASK, ("DistilBertTokenizer",), ("distilbert",)),
    Family(
        "mpnet",
        "vocab.txt",
        {**_ROBERTA_TOKENS, "unk_token": "[UNK]"},
        _IDS_AND_MASK,
        ("MPNetTokenizer",),
        ("mpnet",),
        like_roberta=True,
    ),
    Family(
        "gpt2",
        "merges.txt",
        {"bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>", "unk_token": "<|endoftext|>"},
        _IDS_AND_MASK,
        ("GPT2Tokenizer", "CodeGenTokenizer"),
        ("gpt2", "gpt_neo", "gptj", "opt", "codegen", "phi"),
    ),
    Family("openai-gpt", "merges.txt", {"unk_token": "<unk>"}, _IDS_AND_MASK, ("OpenAIGPTTokenizer",), ("openai-gpt",)),
    Family("ctrl", "merges.txt", {"unk_token": "<unk>"}, _IDS_AND_MASK, ("CTRLTokenizer",), ("ctrl",)),
    Family(
        "roberta",
        "merges.txt",
        _ROBERTA_TOKENS,
        _IDS_AND_MASK,
        ("RobertaTokenizer", "BartTokenizer", "LongformerTokenizer", "LEDTokenizer", "MvpTokenizer"),
        ("roberta", "roberta-prelayernorm", "bart", "longformer", "led", "mvp", "data2vec-text", "ibert"),
    ),
    Family(
        "deberta",
        "merges.txt",
        _DEBERTA_TOKENS,
        _WITH_TYPES,
        ("DebertaTokenizer",),
        ("deberta",),
    ),
    Family(
        "deberta-v2",
        "sentencepiece",
        _DEBERTA_TOKENS,
        _WITH_TYPES,
        ("DebertaV2Tokenizer",),
        ("deberta-v2",),
    ),
    Family(
        "xlm",
        None,
        {},
        _WITH_TYPES,
        ("XLMTokenizer",),
        ("xlm",),
        "the rules and word lists by which Moses cuts each language into words, which came in a program of their own",
    ),
    Family(
        "t5",
        "sentencepiece",
        {"eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"},
        _IDS_AND_MASK,
        ("T5Tokenizer", "MT5Tokenizer"),
        ("t5", "mt5", "longt5", "umt5", "switch_transformers"),
    ),
    Family(
        "albert",
        "sentencepiece",
        {**_DEBERTA_TOKENS, "unk_token": "<unk>", "pad_token": "<pad>"},
        _WITH_TYPES,
        ("AlbertTokenizer",),
        ("albert",),
    ),
    Family(
        "big_bird",
        "sentencepiece",
        {**_BERT_TOKENS, "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"},
        _IDS_AND_MASK,
        ("BigBirdTokenizer",),
        ("big_bird",),
    ),
    Family(
        "xlm-roberta",
        "sentencepiece",
        _ROBERTA_TOKENS,
        _IDS_AND_MASK,
        ("XLMRobertaTokenizer",),
        ("xlm-roberta", "xlm-roberta-xl"),
    ),
    Family(
        "xlnet",
        "sentencepiece",
        {
            "bos_token": "<s>",
            "eos_token": "</s>",
            "unk_token": "<unk>",
            "sep_token": "<sep>",
            "pad_token": "<pad>",
            "cls_token": "<cls>",
            "mask_token": "<mask>",
        },
        _WITH_TYPES,
        ("XLNetTokenizer",),
        ("xlnet",),
        settings={"padding_side": "left", "pad_token_type_id": 3},
    ),
    Family(
        "transfo-xl",
        None,
        {},
        ("input_ids",),
        ("TransfoXLTokenizer",),
        ("transfo-xl",),
        "the rules by which Moses cuts text into words, and the words themselves are a pickle, which is never opened",
    ),
    Family("mbart", "sentencepiece", _ROBERTA_TOKENS, _IDS_AND_MASK, ("MBartTokenizer",), ("mbart",)),
    Family("mbart50", "sentencepiece", _ROBERTA_TOKENS, _IDS_AND_MASK, ("MBart50Tokenizer",)),
    Family("nllb", "sentencepiece", _ROBERTA_TOKENS, _IDS_AND_MASK, ("NllbTokenizer",)),
    Family(
        "m2m_100",
        "sentencepiece",
        {name: token for name, token in _ROBERTA_TOKENS.items() if name not in ("cls_token", "mask_token")},
        _IDS_AND_MASK,
        ("M2M100Tokenizer",),
        ("m2m_100",),
    ),
    Family(
        "pegasus",
        "sentencepiece",
        {"eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>", "mask_token": "<mask_2>"},
        _IDS_AND_MASK,
        ("PegasusTokenizer",),
        ("pegasus",),
    ),
    Family(
        "llama",
        "sentencepiece",
        {},
        _IDS_AND_MASK,
        ("LlamaTokenizer", "GemmaTokenizer"),
        ("llama", "mistral", "mixtral", "gemma", "gemma2"),
    ),
    Family(
        "marian",
        "sentencepiece",
        {"eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"},
        _IDS_AND_MASK,
        ("MarianTokenizer",),
        ("marian",),
    ),
)
_BY_CLASS = {name: family for family in FAMILIES for name in family.classes}
_BY_MODEL_TYPE = {name: family for family in FAMILIES for name in family.model_types}


def by_name(name: str) -> Family:
    """The family of that name."""
    return next(family for family in FAMILIES if family.name == name)


def announced(config: Mapping[str, Any], model_config: Mapping[str, Any]) -> tuple[Family | None, str | None]:
    """The family the files announce, and the name they announce it by (which may be one not known here)."""
    saved_here = config.get("clearhead_family")
    if isinstance(saved_here, str) and any(family.name == saved_here for family in FAMILIES):
        return by_name(saved_here), saved_here
    for value in (config.get("tokenizer_class"), model_config.get("tokenizer_class")):
        if isinstance(value, str) and value:
            name = value.removesuffix("Fast")
            return _BY_CLASS.get(name), name
    kind = model_config.get("model_type")
    return (_BY_MODEL_TYPE.get(kind), kind) if isinstance(kind, str) and kind else (None, None)
