"""How a text is read for an explanation, and which token of it is meant."""

SENTENCES = {
    "must_be_string": ("The {name} must be a string, not {got}.", "{name} 必须是字符串，而不是 {got}。"),
    "second_is_empty": (
        "The second text is empty. Leave it out, or give at least one word.",
        "第二段文本是空的。请去掉它，或至少给出一个词。",
    ),
    "several_texts": (
        "{title} is loaded for {task}, which reads several texts at once. Load it for another task.",
        "{title} 按 {task} 加载，它要同时读多段文本。请按另一个任务加载。",
    ),
    "one_text": (
        "An encoder–decoder reads one text: leave the second out.",
        "编码器–解码器模型只读一段文本：请去掉第二段。",
    ),
    "no_target": (
        "{title} has one stack, which reads; only an encoder–decoder has a target.",
        "{title} 只有一个用来阅读的堆栈；只有编码器–解码器模型才有要写的内容。",
    ),
    "no_tokens": (
        "The text has no tokens: the tokenizer left nothing of it. Give at least one word.",
        "这段文本没有词元：分词器什么也没留下。请至少给出一个词。",
    ),
    "too_long": (
        "The {what} has {count} tokens, but {title} reads at most {limit}. Shorten it.",
        "{what}有 {count} 个词元，而 {title} 最多读 {limit} 个。请缩短。",
    ),
    "text": ("text", "文本"),
    "two_texts": ("two texts together", "两段文本合起来"),
    "target": ("target", "要写的内容"),
    "give_the_target": (
        "{title} is loaded for {task} and does not write: give the target to read.",
        "{title} 按 {task} 加载，不会写作：请给出解码器要读的内容。",
    ),
    "no_start_token": (
        "The configuration does not say which token starts the output. For a model that knows languages, set "
        "pipe.tokenizer.tgt_lang first.",
        "配置没有说明输出以哪个词元开始。对认识语言的模型，请先设置 pipe.tokenizer.tgt_lang。",
    ),
    # ---- a token that somebody chose
    "no_token_id": (
        "There is no token {token}: ids go from 0 to {last}.",
        "没有词元 {token}：编号从 0 到 {last}。",
    ),
    "token_by_text_or_id": (
        "A token is chosen by its text or its id, not by {token}.",
        "词元按文本或编号选择，而不是 {token}。",
    ),
    "several_tokens": (
        "{token} is {count} tokens ({pieces}); choose one token, by its text or its id.",
        "{token} 是 {count} 个词元（{pieces}）；请按文本或编号选择一个词元。",
    ),
}
