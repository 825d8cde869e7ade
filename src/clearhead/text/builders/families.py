"""The table of tokenizer families: one entry says all that the name of a tokenizer class or model type means.

Files such as vocab.json say nothing about how text is cut or wrapped. The class name in tokenizer_config.json
does, or else the model type in config.json. No other file knows a family by its name.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import tokenizers

from clearhead.text.builders import language_codes
from clearhead.text.builders.bpe import ByteWordMergesFiles, MergesFiles, WordMergesFiles, decode_words
from clearhead.text.builders.ctrl import CtrlMergesFiles
from clearhead.text.builders.overrides import (
    override_bert_normalizer,
    override_case,
    override_case_and_accents,
    override_prefix_space,
)
from clearhead.text.builders.piece_lookup import PieceLookupFiles
from clearhead.text.builders.sentencepiece import SentencePieceFiles
from clearhead.text.builders.sentencepiece_layouts import (
    AddLanguageCodes,
    CleaningNormalizers,
    FairseqLayout,
    add_extra_ids,
    add_mask,
    add_target_codes,
    deberta_normalizers,
    pegasus_layout,
)
from clearhead.text.builders.templates import (
    BERT,
    BOS_EOS,
    CLIP,
    END_EACH,
    END_ONCE,
    ROBERTA,
    XLM_ROBERTA,
    XLNET,
    BosEosTemplate,
    Config,
    LanguageTemplate,
)
from clearhead.text.builders.vocabulary_files import VocabularyFiles
from clearhead.text.builders.word_list import SAVED_CLASS, TEMPLATE, TOKENS, WordListFiles
from clearhead.text.builders.wordpiece import WordPieceFiles
from clearhead.text.languages import Languages

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
_BERT_SETTINGS = {"do_lower_case": True, "strip_accents": None, "tokenize_chinese_chars": True}
_T5_TOKENS = {"eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}


@dataclass(frozen=True)
class TokenizerFamily:
    """
    files         the older vocabulary files it is rebuilt from, and how; None: they cannot be
    tokens        the special tokens where no file names them
    classes       its classes in `transformers`, without "Fast"
    model_types   the models that have it, where no class is named
    inputs        what a model of the family is called with
    settings      what tokenizer_config.json means where it is silent
    options       settings of tokenizer_config.json that only some families have, and this one applies
    mask_lstrip   the mask token takes the space before it
    languages     which languages it knows, by what tokenizer_config.json says
    override      settings of tokenizer_config.json that overrule tokenizer.json, as in `transformers`
    missing       what the older files lack, where nothing can rebuild it
    """

    name: str
    files: VocabularyFiles | None
    tokens: Mapping[str, str]
    classes: tuple[str, ...]
    model_types: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ("input_ids", "attention_mask")
    settings: Mapping[str, Any] = field(default_factory=dict)
    options: tuple[str, ...] = ()
    mask_lstrip: bool = False
    languages: Callable[[Config], Languages] | None = None
    override: Callable[[tokenizers.Tokenizer, Config], None] | None = None
    missing: str | None = None


FAMILIES = (
    TokenizerFamily(
        "bert",
        WordPieceFiles(),
        _BERT_TOKENS,
        ("BertTokenizer", "ElectraTokenizer", "MobileBertTokenizer", "SqueezeBertTokenizer", "ConvBertTokenizer"),
        ("bert", "electra", "mobilebert", "squeezebert", "convbert", "layoutlm", "megatron-bert", "visual_bert"),
        inputs=_WITH_TYPES,
        settings=_BERT_SETTINGS,
        options=tuple(_BERT_SETTINGS),
        override=override_bert_normalizer,
    ),
    TokenizerFamily(
        "distilbert",
        WordPieceFiles(),
        _BERT_TOKENS,
        ("DistilBertTokenizer",),
        ("distilbert",),
        settings=_BERT_SETTINGS,
        options=tuple(_BERT_SETTINGS),
        override=override_bert_normalizer,
    ),
    TokenizerFamily(
        "mpnet",
        WordPieceFiles(template=ROBERTA, saved_class="MPNetTokenizer"),
        {**_ROBERTA_TOKENS, "unk_token": "[UNK]"},
        ("MPNetTokenizer",),
        ("mpnet",),
        mask_lstrip=True,
        settings=_BERT_SETTINGS,
        options=tuple(_BERT_SETTINGS),
        override=override_bert_normalizer,
    ),
    TokenizerFamily(
        "gpt2",
        MergesFiles(BOS_EOS, saved_class="GPT2Tokenizer"),
        {"bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>", "unk_token": "<|endoftext|>"},
        ("GPT2Tokenizer", "CodeGenTokenizer"),
        ("gpt2", "gpt3", "gpt_neo", "gptj", "opt", "codegen", "phi"),
        settings={"add_prefix_space": False},
        override=override_prefix_space,
        options=("add_prefix_space", "add_bos_token", "add_eos_token"),
    ),
    TokenizerFamily(
        "openai-gpt",
        WordMergesFiles(saved_class="OpenAIGPTTokenizer"),
        {"unk_token": "<unk>"},
        ("OpenAIGPTTokenizer",),
        ("openai-gpt",),
    ),
    TokenizerFamily(
        "clip",
        ByteWordMergesFiles(CLIP, saved_class="CLIPTokenizer"),
        {
            "bos_token": "<|startoftext|>",
            "eos_token": "<|endoftext|>",
            "unk_token": "<|endoftext|>",
            "pad_token": "<|endoftext|>",
        },
        ("CLIPTokenizer",),
        ("clip", "clip_text_model"),
        settings={"do_lower_case": True},
        options=("do_lower_case", "add_prefix_space"),
        override=decode_words,
    ),
    TokenizerFamily(
        "ctrl", CtrlMergesFiles(saved_class="CTRLTokenizer"), {"unk_token": "<unk>"}, ("CTRLTokenizer",), ("ctrl",)
    ),
    TokenizerFamily(
        "roberta",
        MergesFiles(ROBERTA, saved_class="RobertaTokenizer"),
        _ROBERTA_TOKENS,
        ("RobertaTokenizer", "BartTokenizer", "LongformerTokenizer", "LEDTokenizer", "MvpTokenizer"),
        ("roberta", "roberta-prelayernorm", "bart", "longformer", "led", "mvp", "data2vec-text", "ibert"),
        mask_lstrip=True,
        settings={"add_prefix_space": False},
        override=override_prefix_space,
        options=("add_prefix_space",),
    ),
    TokenizerFamily(
        "deberta",
        MergesFiles(BERT),  # the class in `transformers` would put two [SEP] between a pair
        _DEBERTA_TOKENS,
        ("DebertaTokenizer",),
        ("deberta",),
        inputs=_WITH_TYPES,
        mask_lstrip=True,
        settings={"add_prefix_space": False},
        override=override_prefix_space,
        options=("add_prefix_space",),
    ),
    TokenizerFamily(
        "deberta-v2",
        SentencePieceFiles(BERT, normalizers=deberta_normalizers, add_tokens=add_mask),
        _DEBERTA_TOKENS,
        ("DebertaV2Tokenizer",),
        ("deberta-v2",),
        inputs=_WITH_TYPES,
        options=("do_lower_case", "split_by_punct"),
        override=override_case,
    ),
    TokenizerFamily(
        "xlm",
        None,
        {},
        ("XLMTokenizer",),
        ("xlm",),
        inputs=_WITH_TYPES,
        missing="the rules and word lists by which Moses cuts each language into words, which came in a program of "
        "their own",
    ),
    TokenizerFamily(
        "t5",
        SentencePieceFiles(END_EACH, add_tokens=add_extra_ids),
        _T5_TOKENS,
        ("T5Tokenizer", "MT5Tokenizer"),
        ("t5", "mt5", "longt5", "umt5", "switch_transformers"),
        options=("extra_ids",),
    ),
    TokenizerFamily(
        "albert",
        SentencePieceFiles(BERT, normalizers=CleaningNormalizers(lowercase=True)),
        {**_DEBERTA_TOKENS, "unk_token": "<unk>", "pad_token": "<pad>"},
        ("AlbertTokenizer",),
        ("albert",),
        inputs=_WITH_TYPES,
        mask_lstrip=True,
        options=("do_lower_case", "keep_accents"),
        override=override_case_and_accents,
    ),
    TokenizerFamily(
        "big_bird",
        SentencePieceFiles(BERT),
        {**_BERT_TOKENS, "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"},
        ("BigBirdTokenizer",),
        ("big_bird",),
        mask_lstrip=True,
    ),
    TokenizerFamily(
        "xlm-roberta",
        SentencePieceFiles(XLM_ROBERTA, layout=FairseqLayout()),
        _ROBERTA_TOKENS,
        ("XLMRobertaTokenizer",),
        ("xlm-roberta", "xlm-roberta-xl"),
        mask_lstrip=True,
    ),
    TokenizerFamily(
        "xlnet",
        SentencePieceFiles(XLNET, normalizers=CleaningNormalizers(lowercase=False)),
        {**_ROBERTA_TOKENS, "sep_token": "<sep>", "cls_token": "<cls>"},
        ("XLNetTokenizer",),
        ("xlnet",),
        inputs=_WITH_TYPES,
        settings={"padding_side": "left", "pad_token_type_id": 3},
        mask_lstrip=True,
        options=("do_lower_case", "keep_accents"),
        override=override_case,
    ),
    TokenizerFamily(
        "transfo-xl",
        None,
        {},
        ("TransfoXLTokenizer",),
        ("transfo-xl",),
        inputs=("input_ids",),
        missing="the rules by which Moses cuts text into words, and the words themselves are a pickle, which is never "
        "opened",
    ),
    TokenizerFamily(
        "mbart",
        SentencePieceFiles(LanguageTemplate(language_codes.mbart), layout=FairseqLayout(language_codes.mbart)),
        _ROBERTA_TOKENS,
        ("MBartTokenizer",),
        ("mbart",),
        mask_lstrip=True,
        languages=language_codes.mbart,
    ),
    TokenizerFamily(
        "mbart50",
        SentencePieceFiles(LanguageTemplate(language_codes.mbart_50), layout=FairseqLayout(language_codes.mbart_50)),
        _ROBERTA_TOKENS,
        ("MBart50Tokenizer",),
        mask_lstrip=True,
        languages=language_codes.mbart_50,
    ),
    TokenizerFamily(
        "nllb",
        SentencePieceFiles(LanguageTemplate(language_codes.nllb), layout=FairseqLayout(language_codes.nllb)),
        _ROBERTA_TOKENS,
        ("NllbTokenizer",),
        mask_lstrip=True,
        languages=language_codes.nllb,
        options=("legacy_behaviour",),
    ),
    TokenizerFamily(
        "m2m_100",
        PieceLookupFiles(
            LanguageTemplate(language_codes.m2m_100),
            saved_class="M2M100Tokenizer",
            add_tokens=AddLanguageCodes(language_codes.m2m_100),
        ),
        {name: token for name, token in _ROBERTA_TOKENS.items() if name not in ("cls_token", "mask_token")},
        ("M2M100Tokenizer",),
        ("m2m_100",),
        languages=language_codes.m2m_100,
        options=("language_codes",),
    ),
    TokenizerFamily(
        "pegasus",
        SentencePieceFiles(END_ONCE, layout=pegasus_layout),
        {**_T5_TOKENS, "mask_token": "<mask_2>"},
        ("PegasusTokenizer",),
        ("pegasus", "bigbird_pegasus"),
        options=("offset", "mask_token_sent"),
    ),
    TokenizerFamily(
        "llama",
        SentencePieceFiles(BosEosTemplate(bos=True)),
        {},
        ("LlamaTokenizer", "GemmaTokenizer"),
        ("llama", "mistral", "mixtral", "gemma", "gemma2"),
        options=("add_bos_token", "add_eos_token"),
    ),
    TokenizerFamily(
        "marian",
        PieceLookupFiles(END_ONCE, saved_class="MarianTokenizer", add_tokens=add_target_codes),
        _T5_TOKENS,
        ("MarianTokenizer",),
        ("marian",),
        settings={"model_max_length": 512},
    ),
    TokenizerFamily(
        "fastai",
        WordListFiles(TEMPLATE, saved_class=SAVED_CLASS),
        TOKENS,
        (SAVED_CLASS,),
        ("awd-lstm",),
    ),
)
_BY_NAME = {family.name: family for family in FAMILIES}
_BY_CLASS = {name: family for family in FAMILIES for name in family.classes}
_BY_MODEL_TYPE = {name: family for family in FAMILIES for name in family.model_types}


def by_name(name: str) -> TokenizerFamily:
    """The family of that name."""
    return _BY_NAME[name]


def announced_family(config: Config, model_config: Config) -> tuple[TokenizerFamily | None, str | None]:
    """The family the files announce, and the name they announce it by (which may be one not known here)."""
    saved_here = config.get("clearhead_family")
    if isinstance(saved_here, str) and saved_here in _BY_NAME:
        return _BY_NAME[saved_here], saved_here
    for value in (config.get("tokenizer_class"), model_config.get("tokenizer_class")):
        if isinstance(value, str) and value:
            name = value.removesuffix("Fast")
            return _BY_CLASS.get(name), name
    model_type = model_config.get("model_type")
    if isinstance(model_type, str) and model_type:
        return _BY_MODEL_TYPE.get(model_type), model_type
    return None, None
