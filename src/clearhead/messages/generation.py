"""What keeps a model from writing: no head for it, no room, no text, options that contradict each other."""

SENTENCES = {
    "cannot_write": (
        "{family} loaded for {task} cannot write text: it has no language head that reads left to right and scores the "
        "next token.{hint}",
        "按 {task} 加载的 {family} 不会写作：它没有从左到右阅读、给下一个词元打分的语言头。{hint}",
    ),
    "use_fill": (" To guess hidden words, use fill.", "要猜被遮住的词，请用 fill。"),
    "no_room": (
        "The prompt has {count} tokens, and the model has {positions} positions: there is no room to write. Shorten "
        "the prompt.",
        "提示有 {count} 个词元，而模型只有 {positions} 个位置：没有地方可写了。请缩短提示。",
    ),
    "past_max_length": (
        "The prompt has {count} tokens already, and max_length is {max_length}.",
        "提示已有 {count} 个词元，而 max_length 是 {max_length}。",
    ),
    "no_token_left": (
        "The logits processors and constraints (penalties, forbidden and forced words, a grammar) leave no token that "
        "may be written here. Ask for fewer of them, or less text.",
        "logits 处理器和约束（惩罚、禁用词和强制词、语法）没有留下可以写的词元。请少用几条，或少写一些。",
    ),
    "no_start_token": (
        "The configuration does not say which token starts the output: pass decoder_start_token_id. (For mBART it is "
        "the id of the target language.)",
        "配置没有说明输出以哪个词元开始：请给出 decoder_start_token_id。（对 mBART，它是目标语言的编号。）",
    ),
    # ---- retrieval
    "no_neighbors": (
        "{family} looks at no neighbours of its text: leave store and neighbors out. A RETRO does (model_type retro).",
        "{family} 不看文本的近邻：请不要给 store 和 neighbors。RETRO 才会看（model_type 为 retro）。",
    ),
    "neighbors_count": (
        "neighbors is how many passages are looked up for every chunk, a whole number from 1 on, not {got}.",
        "neighbors 是每个块查找的段落数，必须是不小于 1 的整数，而不是 {got}。",
    ),
    "neighbors_without_store": (
        "neighbors says how many passages to look up, but there is no store to look in. Give store=, a folder that "
        "clearhead index build has made.",
        "neighbors 说的是要查找多少段落，但没有可查的库。请给出 store=，即 clearhead index build 建好的文件夹。",
    ),
    "no_store": (
        "store must be a folder, or a store with a method search(text, k=), not {got}.",
        "store 必须是文件夹，或带有 search(text, k=) 方法的库，而不是 {got}。",
    ),
    "no_padding_for_neighbors": (
        "{title} has no padding token to fill short passages with: set pad_token_id in its config.json.",
        "{title} 没有用来补齐短段落的填充词元：请在它的 config.json 里设置 pad_token_id。",
    ),
    "ask_needs_retro": (
        "{title} looks nothing up, so it cannot be asked about a store. Name a RETRO (model_type retro): --model.",
        "{title} 不查资料，不能就资料库向它提问。请用 RETRO（model_type 为 retro）：--model。",
    ),
    "empty_question": ("There is no question: it is empty.", "没有问题：它是空的。"),
    "no_filler": (
        "{title} has no end token to fill a question up with to a whole chunk: its tokenizer needs one.",
        "{title} 没有结束词元，无法把问题补足为一个整块：它的分词器需要一个。",
    ),
    # ---- the text
    "text_is_string": ("The text must be a string, not {got}.", "文本必须是字符串，而不是 {got}。"),
    "empty_text": (
        "The text is empty. Give at least one word (or leave it out to write from nothing).",
        "文本是空的。请至少给出一个词（或不给文本，让它从头写起）。",
    ),
    "no_text": ("There is no text to read.", "没有可读的文本。"),
    "needs_prompt": (
        "This model has no token to begin with, so it needs a prompt.",
        "这个模型没有起始词元，所以需要提示。",
    ),
    "no_tokenizer": (
        "{title} came without tokenizer files, so it takes token ids only: use .model(input_ids=…), or copy "
        "tokenizer.json into its folder.",
        "{title} 没有附带分词器文件，所以只接受词元编号：请用 .model(input_ids=…)，"
        "或把 tokenizer.json 放进它的文件夹。",
    ),
    "no_tokens_but_words": (
        "{title} reads whole words by their characters: it has no tokens, so this cannot be asked of it.",
        "{title} 按字符读整个词，没有词元，所以无法回答这个问题。",
    ),
    "vectors_of_words": (
        "{title} gives the vectors of words in their sentence, and neither writes nor labels. Ask it with clearhead "
        "embed, search or explain, or load another model.",
        "{title} 给出词在句子里的向量，不写文本，也不给标签。请用 clearhead embed、search 或 explain，或加载别的模型。",
    ),
    "no_codec": (
        "{title} came without a codec: it takes tensors only, through .model(…).",
        "{title} 没有附带编解码器：它只通过 .model(…) 接受张量。",
    ),
    "reads_no_text": (
        "{title} reads no text: its family is {family}.",
        "{title} 不读文本：它属于 {family}。",
    ),
    "about_words": (
        "{title} reads no text, and this is about words. Load a model that does.",
        "{title} 不读文本，而这是关于词的问题。请加载读文本的模型。",
    ),
    "one_input": (
        "{title} reads one input at a time, and nothing beside it.",
        "{title} 一次只读一个输入，不能再附加别的。",
    ),
    "no_languages": (
        "{title} knows no languages by name: leave src_lang and tgt_lang out.",
        "{title} 不按名称区分语言：请去掉 src_lang 和 tgt_lang。",
    ),
    "unknown_language": (
        "{code} is no language of this model.{near} It knows {known} …",
        "{code} 不是这个模型的语言。{near}它认识 {known} ……",
    ),
    # ---- options that do not go together
    "least_above_most": ("{least} ({low}) is above {most} ({high}).", "{least}（{low}）大于 {most}（{high}）。"),
    "more_answers_than_beams": (
        "num_return_sequences ({returned}) is above num_beams ({beams}): a beam search ends with num_beams hypotheses.",
        "num_return_sequences（{returned}）大于 num_beams（{beams}）：束搜索最后只有 num_beams 个假设。",
    ),
    "unequal_groups": (
        "{beams} beams cannot be split into {groups} equal groups.",
        "{beams} 个束不能平均分成 {groups} 组。",
    ),
    "groups_only_search": (
        "Groups of beams cannot sample or force words: drop num_beam_groups or the other.",
        "分组的束不能采样，也不能强制用词：请去掉 num_beam_groups 或另一项。",
    ),
    "one_greedy_answer": (
        "Greedy decoding has one answer. For several, sample (top_k=40, …) or search with num_beams.",
        "贪心解码只有一个答案。要多个，请采样（top_k=40 等）或用 num_beams 搜索。",
    ),
    "contrastive_without": (
        "penalty_alpha asks for contrastive search, which goes without {other}. Drop one.",
        "penalty_alpha 表示对比搜索，它不能与 {other} 同用。请去掉其中一个。",
    ),
    "contrastive_needs_top_k": (
        "Contrastive search chooses among top_k candidates: give penalty_alpha and top_k of 2 or more.",
        "对比搜索在 top_k 个候选中选择：请给出 penalty_alpha 和不小于 2 的 top_k。",
    ),
    "only_when_sampling": (
        "do_sample is False, but {option} only matters when sampling. Drop one.",
        "do_sample 为 False，而 {option} 只在采样时有用。请去掉其中一个。",
    ),
    "beams_do_not_stream": (
        "A beam search knows its answer only at the end, so it cannot stream. Use generate.",
        "束搜索到最后才知道答案，所以不能边写边显示。请用 generate。",
    ),
}
