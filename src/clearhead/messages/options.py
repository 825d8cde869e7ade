"""The options of generation that a page offers: what each does, and what a form calls it."""

SENTENCES = {
    "max_new_tokens": ("Write at most this many tokens; default: 50.", "最多写这么多个词元；默认 50。"),
    "new_tokens": ("Write at most this many tokens.", "最多写这么多个词元。"),  # where a server has its own default
    "temperature": (
        "Divides the scores. Above 1: bolder; below 1: safer.",
        "得分除以它。大于 1 更大胆；小于 1 更稳妥。",
    ),
    "top_k": ("Only the k likeliest tokens.", "只留最可能的 k 个词元。"),
    "top_p": (
        "Nucleus sampling: only the likeliest that together reach this probability.",
        "核采样：只留总概率达到此值的最可能词元。",
    ),
    "num_beams": (
        "Beam search: follow this many texts side by side; the best wins.",
        "束搜索：并排跟随这么多条文本，最好的胜出。",
    ),
    "seed": ("Draw the same way again.", "再用同样的方式抽取。"),
    "min_new_tokens": ("Do not end before this many.", "写够这么多个之前不结束。"),
    "min_p": ("Only tokens at least this share as likely as the likeliest.", "只留概率不低于最可能者这一比例的词元。"),
    "typical_p": (
        "Only tokens about as surprising as expected, up to this probability.",
        "只留惊奇程度接近期望的词元，直到总概率达到此值。",
    ),
    "repetition_penalty": (
        "Above 1: tokens that are there already count less (CTRL's).",
        "大于 1：已经出现过的词元得分降低（出自 CTRL）。",
    ),
    "no_repeat_ngram_size": ("No run of so many tokens twice.", "这么长的词元串不出现两次。"),
    "length_penalty": (
        "Beams rank by log-probability / length to this power: above 0 favours longer answers.",
        "各束按 对数概率 / 长度的此次幂 排名：大于 0 偏好较长的答案。",
    ),
    "stop_strings": ("End after this text. May be given several times.", "写到这段文本就结束。可以给出几段。"),
    "src_lang": ("Of a model for many languages: the language of the text.", "多语言模型：原文的语言。"),
    "tgt_lang": ("Of a model for many languages: the language of the answer.", "多语言模型：译文的语言。"),
    # ---- labels
    "label.max_new_tokens": ("new tokens", "新词元"),
    "label.temperature": ("temperature", "温度"),
    "label.top_k": ("top-k", "top-k"),
    "label.top_p": ("top-p", "top-p"),
    "label.num_beams": ("beams", "束"),
    "label.seed": ("seed", "种子"),
    "label.min_new_tokens": ("at least", "至少"),
    "label.min_p": ("min-p", "min-p"),
    "label.typical_p": ("typical-p", "typical-p"),
    "label.repetition_penalty": ("repetition penalty", "重复惩罚"),
    "label.no_repeat_ngram_size": ("no repeated n-grams", "不重复的 n 元组"),
    "label.length_penalty": ("length penalty", "长度惩罚"),
    "label.stop_strings": ("stop at", "遇此停止"),
    "label.src_lang": ("source language", "原文语言"),
    "label.tgt_lang": ("target language", "译文语言"),
}
