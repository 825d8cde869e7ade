"""The options of generation: what each does, what it must be, and what a form calls it."""

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
    "max_length": ("The same, the prompt counted too.", "同上，提示也计算在内。"),
    "min_length": ("The same, the prompt counted too.", "同上，提示也计算在内。"),
    "do_sample": (
        "Draw at random, or take the likeliest; by default, draw if one of these is given.",
        "随机抽取，或取最可能的；默认：给出了以下任一项就抽取。",
    ),
    "epsilon_cutoff": ("Drop tokens below this probability.", "去掉概率低于此值的词元。"),
    "eta_cutoff": (
        "Drop tokens below a probability that falls where the model is unsure.",
        "去掉概率低于界限的词元；模型越不确定，界限越低。",
    ),
    "num_return_sequences": ("How many answers to give.", "给出几个答案。"),
    "early_stopping": (
        "Beams: stop when num_beams have ended; false: when none is likely to get better; never: when none can.",
        "束搜索：num_beams 条都结束就停；false：不大可能更好时停；never：不可能更好时才停。",
    ),
    "num_beam_groups": ("Beams: in so many groups that avoid each other.", "束搜索：分成这么多组，各组互相避开。"),
    "diversity_penalty": (
        "Beams: what a group is charged for a token that an earlier group chose.",
        "束搜索：一组选了前面的组选过的词元时扣的分。",
    ),
    "penalty_alpha": (
        "Contrastive search, with top_k: the weight against saying the same again.",
        "对比搜索（配合 top_k）：避免重复自己的权重。",
    ),
    "presence_penalty": (
        "Taken from the score of a token that was written.",
        "写过的词元，得分减去此值。",
    ),
    "frequency_penalty": ("The same, for each time it was written.", "同上，写过几次就减几次。"),
    "encoder_repetition_penalty": (
        "Encoder–decoders: above 1 keeps to the words of the source.",
        "编码器–解码器：大于 1 更贴近原文用词。",
    ),
    "encoder_no_repeat_ngram_size": (
        "Encoder–decoders: copy no run of so many tokens.",
        "编码器–解码器：不照抄原文中这么长的词元串。",
    ),
    "renormalize_logits": (
        "Last of all, make the scores log-probabilities again.",
        "最后把得分重新变成对数概率。",
    ),
    "grammar": (
        "The new text must fit: a clearhead.generate.Grammar (choices, regex, json).",
        "新文本必须符合：一个 clearhead.generate.Grammar（choices、regex、json）。",
    ),
    "assistant_model": (
        "Speculative decoding: a smaller model drafts, MODEL verifies. Same text.",
        "推测解码：小模型起草，MODEL 核对。文本不变。",
    ),
    "prompt_lookup_num_tokens": (
        "Speculative decoding: propose N tokens that followed the same words. Same text.",
        "推测解码：提出上文中跟在同样词后面的 N 个词元。文本不变。",
    ),
    "num_assistant_tokens": (
        "How many tokens a draft model proposes at a time.",
        "起草模型一次提出多少个词元。",
    ),
    "cuda_graphs": (
        "Replay each step from a recording. None: where it is possible (a CUDA device).",
        "每一步从录制中重放。None：能用则用（CUDA 设备）。",
    ),
    "compile": (
        "Compile layers before they are recorded: some seconds for each shape, then faster.",
        "录制前先编译各层：每种形状要几秒，之后更快。",
    ),
    # ---- tokens by their ids
    "eos_token_id": ("The tokens that end a text; [] for none.", "结束文本的词元；[] 表示没有。"),
    "pad_token_id": ("What fills a finished row.", "填充已结束的行。"),
    "decoder_start_token_id": ("What an encoder–decoder starts from.", "编码器–解码器从它开始写。"),
    "forced_bos_token_id": (
        "What must follow a single start token: a language, for translators.",
        "单个起始词元之后必须写的：对翻译模型是语言。",
    ),
    "forced_eos_token_id": (
        "What must come last where the length runs out; [] for nothing.",
        "长度用完时必须写的最后一个；[] 表示没有。",
    ),
    "bad_words_ids": ("N-grams that are never written; [] for none.", "从不写的 n 元组；[] 表示没有。"),
    "force_words_ids": (
        "Constrained beam search: n-grams that must be written; a list of alternatives counts as one.",
        "受约束的束搜索：必须写的 n 元组；几种写法的列表算一个。",
    ),
    "suppress_tokens": ("Tokens that are never written.", "从不写的词元。"),
    "begin_suppress_tokens": ("Tokens that are not written at the first place.", "不写在第一个位置的词元。"),
    "sequence_bias": (
        "{{(tokens): what is added to the score of finishing this n-gram}}.",
        "{{(词元): 写完这个 n 元组时得分加上的值}}。",
    ),
    "exponential_decay_length_penalty": (
        "(start, factor): after `start` new tokens the end grows likelier.",
        "(start, factor)：写过 start 个新词元后，越来越可能结束。",
    ),
    # ---- what comes back
    "return_dict_in_generate": (
        "Return a Generation: log-probabilities and reasons to stop beside the tokens.",
        "返回 Generation：除词元外还有对数概率和停止的原因。",
    ),
    "output_scores": (
        "Keep the scores of every step, processed and warped, in it.",
        "其中保留每一步处理后的得分。",
    ),
    "output_logits": (
        "Keep the logits of every step, as the model gave them, in it.",
        "其中保留每一步模型给出的原始 logits。",
    ),
    # ---- what they stand under
    "group.length": ("Length: how much is written", "长度：写多少"),
    "group.sampling": (
        "Sampling: draw the next token at random (any of these turns it on)",
        "采样：随机抽取下一个词元（给出任一项即启用）",
    ),
    "group.search": ("Search: look further than the next token", "搜索：看得比下一个词元更远"),
    "group.processors": (
        "Logits processors: change the scores before a token is chosen",
        "logits 处理器：在选词元之前改变得分",
    ),
    "group.form": ("Form of the answer: only texts that fit can be written", "答案的形式：只能写符合的文本"),
    "group.speed": (
        "Speed: the same answer sooner, or nearly the same in less memory",
        "速度：同样的答案更快，或用更少的内存得到几乎同样的答案",
    ),
    "group.tokens": ("Tokens: by their ids", "词元：按编号"),
    "group.output": ("Output: what comes back", "输出：返回什么"),
    # ---- what they must be, and what goes together
    "expected.ngrams": ("a list of lists of token ids", "词元编号的列表的列表"),
    "expected.ends": ("a token id or a list of them", "一个词元编号，或它们的列表"),
    "expected.seeds": (
        "a whole number below 2 to the power of 62, or a list of them",
        "小于 2 的 62 次方的整数，或它们的列表",
    ),
    "expected.strings": ("a text or a list of texts, none of them empty", "一段文本或几段文本的列表，都不能为空"),
    "expected.decay": ("a pair (start, factor)", "一对数 (start, factor)"),
    "hint.temperature": (
        "For the likeliest token always, leave it out (greedy).",
        "总要最可能的词元，就不要给它（贪心）。",
    ),
    "no_effect": (
        "{name} has no effect without {needs}. Give both, or leave it out.",
        "没有 {needs}，{name} 不起作用。两个都给，或都不给。",
    ),
    "two_lengths": (
        "max_length has no effect beside max_new_tokens, which counts the new tokens alone. Give one of them.",
        "给了 max_new_tokens（只计新词元），max_length 就不起作用。请只给一个。",
    ),
    "unknown_token": (
        "{name} holds the token {token}, but this model knows 0 to {last}.",
        "{name} 中有词元 {token}，而此模型只有 0 到 {last}。",
    ),
    "end_never_written": (
        "eos_token_id holds {token}, which is no token of this model (0 to {last}): it can never end a text.",
        "eos_token_id 中的 {token} 不是此模型的词元（0 到 {last}）：它不会结束文本。",
    ),
    "least_length": (
        "The text ends after {most} new tokens at the latest, so {name} ({least}) cannot be reached.",
        "文本最多写 {most} 个新词元就结束，所以达不到 {name}（{least}）。",
    ),
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
