"""The trained models that ship with Clearhead: a folder each, and a line about each. There is no code here.

`clearhead` imports this package where it is installed and loads from it by name: `ch.load("stories")`.
"""

from pathlib import Path

MODELS = Path(__file__).parent / "models"  # models/NAME: packed weights, tokenizer, card.md, recipe.yaml, curve.json

STORES = Path(__file__).parent / "stores"  # stores/NAME: passages with their vectors (LanceDB); none yet

CARDS = {  # name: (family, what it is, the same in Chinese); the long story is in its folder, in card.md
    "stories": ("gpt2", "a small GPT-2 that writes like an old children's book", "小型 GPT-2，写得像一本老童话书"),
    "bert-mini": (
        "bert",
        "a small BERT, as published: masked words and next sentence (old books)",
        "小型 BERT，与论文相同：猜被遮住的词，判断下一句（旧书）",
    ),
    "sentences": (
        "bert",
        "bert-mini, trained on pairs: one vector for a sentence, near where meanings are near",
        "用句对训练过的 bert-mini：一个句子一个向量，意思相近的靠在一起",
    ),
    "sentiment": (
        "bert",
        "bert-mini, fine-tuned: is a sentence about a film kind or not (SST-2)",
        "微调过的 bert-mini：一句影评是好评还是差评（SST-2）",
    ),
    "intents": (
        "bert",
        "bert-mini, fine-tuned: which of 77 things a bank's customer wants (banking77)",
        "微调过的 bert-mini：银行客户要办的是 77 件事中的哪一件（banking77）",
    ),
    "intents-rnn": (
        "rnn",
        "an LSTM in both directions that learned the same from nothing, a tenth of the size (banking77)",
        "双向 LSTM，从零学会同一件事，只有十分之一大（banking77）",
    ),
    "translate-en-de": (
        "transformer",
        "the 2017 Transformer, small: English captions to German (Multi30k)",
        "小型的 2017 年 Transformer：把英文图片说明译成德文（Multi30k）",
    ),
    "translate-en-fr": ("transformer", "the same to French (Multi30k)", "同上，译成法文（Multi30k）"),
    "translate-en-zh": (
        "transformer",
        "the same for short everyday sentences to Chinese (Tatoeba)",
        "同上，把简短的日常句子译成中文（Tatoeba）",
    ),
    "rnn-en-de": (
        "rnn-seq2seq",
        "before 2017: two LSTMs and one vector between them, English captions to German (Multi30k)",
        "2017 年以前：两个 LSTM，中间只有一个向量，把英文图片说明译成德文（Multi30k）",
    ),
    "rnn-attention-en-de": (
        "rnn-seq2seq",
        "the same with attention: the decoder looks at all states of the encoder (Multi30k)",
        "同上，加上注意力：解码器可以看编码器的全部状态（Multi30k）",
    ),
    "rnn-attention-en-zh": (
        "rnn-seq2seq",
        "an LSTM with attention for short everyday sentences to Chinese (Tatoeba)",
        "带注意力的 LSTM，把简短的日常句子译成中文（Tatoeba）",
    ),
    "elmo-small": (
        "elmo",
        "a small ELMo: vectors of words in their sentence, read by characters, forwards and backwards",
        "小型 ELMo：按字符读词，正反两个方向读句子，给出词在句中的向量",
    ),
    "awd-lstm": (
        "awd-lstm",
        "the language model that ULMFiT begins with, small: three LSTMs that read whole words",
        "ULMFiT 的起点：小型语言模型，三层 LSTM，按整词阅读",
    ),
    "glove": (
        "word-vectors",
        "GloVe's vectors of the 40,000 most frequent English words, 50 numbers each",
        "GloVe 词向量：最常用的 40,000 个英文词，每个词 50 个数",
    ),
}
