"""The stops of a walk: one token followed through one layer."""

SENTENCES = {
    # ---- stops
    "embedding.title": ("Embedding", "嵌入"),
    "embedding.explanation": (
        "Token {token} becomes a vector of {width} numbers; its position has one too.",
        "词元 {token} 变成一个含 {width} 个数的向量；它的位置也有一个向量。",
    ),
    "one_layer_below.title": ("The layers below", "下面的各层"),
    "one_layer_below.explanation": ("The layer below has rewritten it.", "下面的一层已经改写过它。"),
    "layers_below.title": ("The layers below", "下面的各层"),
    "layers_below.explanation": ("The {count} layers below have rewritten it.", "下面的 {count} 层已经改写过它。"),
    "query_key_value.title": ("Query, key, value", "查询、键、值"),
    "query_key_value.explanation": (
        "Three matrices turn each vector into three; cut into {heads} heads of {head_dim}. This is head {head}.",
        "三个矩阵把每个向量变成三个，再切成 {heads} 个头，每头 {head_dim} 维。这里是头 {head}。",
    ),
    "attention.title": ("Score, scale, mask, softmax", "打分、缩放、遮挡、softmax"),
    "attention.explanation": (
        "Its query is dotted with every key and multiplied by {scale:.4g}; softmax turns scores into shares of one.",
        "它的查询与每个键做点积，再乘以 {scale:.4g}；softmax 把得分变成总和为一的份额。",
    ),
    "masked_attention.title": ("Score, scale, mask, softmax", "打分、缩放、遮挡、softmax"),
    "masked_attention.explanation": (
        "Its query is dotted with every key and multiplied by {scale:.4g}; later tokens are hidden; softmax turns "
        "scores into shares of one.",
        "它的查询与每个键做点积，再乘以 {scale:.4g}；看不到的词元被遮住；softmax 把得分变成总和为一的份额。",
    ),
    "weighted_sum.title": ("Weighted sum", "加权求和"),
    "weighted_sum.explanation": (
        "The values, each taken in proportion to its weight, add up to this head's answer.",
        "各个值按权重相加，就是这个头的答案。",
    ),
    "merge.title": ("Merge and project", "合并与投影"),
    "merge.explanation": (
        "The {heads} answers stand side by side ({heads} × {head_dim}) and one more matrix mixes them.",
        "{heads} 个头的答案并排（{heads} × {head_dim}），再由一个矩阵混合。",
    ),
    "look_at_source.title": ("Look at the source", "看原文"),
    "look_at_source.explanation": (
        "A new query is dotted with the keys of the {count} tokens that the encoder has read.",
        "新的查询与编码器读过的 {count} 个词元的键做点积。",
    ),
    "take_from_source.title": ("Take from the source", "从原文取值"),
    "take_from_source.explanation": (
        "The encoder's values, each in proportion to its weight; all heads, mixed by one more matrix.",
        "编码器的各个值按权重相加；所有的头再由一个矩阵混合。",
    ),
    "feed_forward.title": ("Feed-forward", "前馈网络"),
    "feed_forward.explanation": (
        "Added to the token's own vector, widened to {width}, taken through an activation function, and narrowed "
        "again.",
        "加到词元自己的向量上，展宽到 {width}，经过激活函数，再收窄。",
    ),
    "one_layer_above.title": ("The layers above", "上面的各层"),
    "one_layer_above.explanation": (
        "The same happens {count} more time, with other weights.",
        "同样的过程再重复 {count} 次，权重不同。",
    ),
    "layers_above.title": ("The layers above", "上面的各层"),
    "layers_above.explanation": (
        "The same happens {count} more times, with other weights.",
        "同样的过程再重复 {count} 次，权重各不相同。",
    ),
    # ---- stops in a recurrent layer
    "recurrent_embedding.title": ("Embedding", "嵌入"),
    "recurrent_embedding.explanation": (
        "Token {token} becomes a vector of {width} numbers. Nothing says where it stands: the order is in the state.",
        "词元 {token} 变成一个含 {width} 个数的向量。没有什么说明它的位置：顺序存在状态里。",
    ),
    "character_embedding.title": ("Embedding", "嵌入"),
    "character_embedding.explanation": (
        "The characters of “{text}” become a vector of {width} numbers. Nothing says where the word stands: the order "
        "is in the state.",
        "“{text}”的各个字符变成一个含 {width} 个数的向量。没有什么说明这个词的位置：顺序存在状态里。",
    ),
    "last_state.title": ("What it remembers", "它记得什么"),
    "last_state.explanation": (
        "All that the layer knows of the words before is what the last step handed over.",
        "对前面的词，这一层所知的全部，就是上一步交过来的状态。",
    ),
    "no_state_yet.title": ("What it remembers", "它记得什么"),
    "no_state_yet.explanation": (
        "Nothing: this is the first word, and the state begins with zeros.",
        "什么也没有：这是第一个词，状态从零开始。",
    ),
    "state_from_encoder.title": ("What it remembers", "它记得什么"),
    "state_from_encoder.explanation": (
        "Nothing of its own: the decoder begins with what the encoder handed over.",
        "自己还没有：解码器从编码器交过来的内容开始。",
    ),
    "input_gate.title": ("Input gate", "输入门"),
    "input_gate.explanation": (
        "Two matrices, one for the word and one for the last state; their sum through a sigmoid: how much of the "
        "candidate is let in, 0 to 1.",
        "两个矩阵，一个乘词，一个乘上一个状态；相加后经过 sigmoid：让候选进来多少，0 到 1。",
    ),
    "forget_gate.title": ("Forget gate", "遗忘门"),
    "forget_gate.explanation": (
        "The same with other matrices: how much of the old cell stays. 1 keeps everything.",
        "同样的算法，另一组矩阵：旧的细胞状态留下多少。1 表示全部保留。",
    ),
    "candidate.title": ("Candidate", "候选"),
    "candidate.explanation": (
        "The sum goes through tanh instead: what could be written into the cell, −1 to 1.",
        "这一次相加后经过 tanh：可以写入细胞状态的内容，−1 到 1。",
    ),
    "output_gate.title": ("Output gate", "输出门"),
    "output_gate.explanation": (
        "Once more through a sigmoid: how much of the cell will be shown.",
        "再经过一次 sigmoid：细胞状态将露出多少。",
    ),
    "new_cell.title": ("The new cell", "新的细胞状态"),
    "new_cell.explanation": (
        "forget gate × old cell + input gate × candidate: some of the old is kept, some of the new is written.",
        "遗忘门 × 旧细胞状态 + 输入门 × 候选：旧的留一些，新的写一些。",
    ),
    "new_hidden.title": ("The new state", "新的状态"),
    "new_hidden.explanation": (
        "output gate × tanh(cell): what the layer says now, and what the next step finds.",
        "输出门 × tanh(细胞状态)：这一层现在说出的内容，也是下一步看到的内容。",
    ),
    "projected_hidden.title": ("The new state", "新的状态"),
    "projected_hidden.explanation": (
        "output gate × tanh(cell), and one more matrix narrows it to {width} numbers: what the layer says now, and "
        "what the next step finds.",
        "输出门 × tanh(细胞状态)，再由一个矩阵缩成 {width} 个数：这一层现在说出的内容，也是下一步看到的内容。",
    ),
    "reset_gate.title": ("Reset gate", "重置门"),
    "reset_gate.explanation": (
        "Two matrices, one for the word and one for the last state; their sum through a sigmoid: how much of the past "
        "the candidate may use, 0 to 1.",
        "两个矩阵，一个乘词，一个乘上一个状态；相加后经过 sigmoid：候选可以用上多少过去，0 到 1。",
    ),
    "update_gate.title": ("Update gate", "更新门"),
    "update_gate.explanation": (
        "The same with other matrices: how much of the old state stays as it was.",
        "同样的算法，另一组矩阵：旧状态有多少保持不变。",
    ),
    "gru_candidate.title": ("Candidate", "候选"),
    "gru_candidate.explanation": (
        "What the state says is multiplied by the reset gate first; the sum goes through tanh.",
        "状态那一部分先乘以重置门；相加后经过 tanh。",
    ),
    "gru_hidden.title": ("The new state", "新的状态"),
    "gru_hidden.explanation": (
        "update gate × old state + (1 − update gate) × candidate.",
        "更新门 × 旧状态 + (1 − 更新门) × 候选。",
    ),
    "plain_hidden.title": ("The new state", "新的状态"),
    "plain_hidden.explanation": (
        "Two matrices, one for the word and one for the last state; their sum, bent by one function, is the new state. "
        "There are no gates.",
        "两个矩阵，一个乘词，一个乘上一个状态；相加后经过一个函数，就是新的状态。没有门。",
    ),
    "given_state.title": ("The new state", "新的状态"),
    "given_state.explanation": (
        "What the layer makes of the word and of what it remembers; it announces nothing in between.",
        "这一层由词和它所记得的内容得到的结果；中间步骤没有公布。",
    ),
    "look_before.title": ("Look at the encoder's states", "看编码器的状态"),
    "look_before.explanation": (
        "Before the step, the last state is held against each of the {count} encoder states ({score}); softmax turns "
        "the scores into shares of one.",
        "在这一步之前，上一个状态与编码器的 {count} 个状态逐一比较（{score}）；softmax 把得分变成总和为一的份额。",
    ),
    "look_after.title": ("Look at the encoder's states", "看编码器的状态"),
    "look_after.explanation": (
        "The new state is held against each of the {count} encoder states ({score}); softmax turns the scores into "
        "shares of one.",
        "新的状态与编码器的 {count} 个状态逐一比较（{score}）；softmax 把得分变成总和为一的份额。",
    ),
    "context.title": ("Context", "上下文向量"),
    "context.explanation": (
        "The encoder's states, each taken in proportion to its weight, add up to one vector: what matters now.",
        "编码器的各个状态按权重相加，得到一个向量：此刻要紧的内容。",
    ),
    "readout.title": ("State and context together", "状态与上下文合在一起"),
    "readout.explanation": (
        "Side by side, [context; state], through one more matrix and tanh: what the words are scored by.",
        "两者并排，[上下文; 状态]，再乘一个矩阵并经过 tanh：用来给词打分的向量。",
    ),
    "readout_of_state.title": ("What is read out", "读出"),
    "readout_of_state.explanation": (
        "The state (and the encoder's last one, where that is fed again at every step) goes through one more matrix "
        "and tanh: what the words are scored by.",
        "状态（若每一步都再次送入编码器的最后状态，则连同它）再乘一个矩阵并经过 tanh：用来给词打分的向量。",
    ),
    "final_norm.title": ("Final norm", "最后的归一化"),
    "final_norm.explanation": (
        "A last normalisation brings the vector to a known size.",
        "最后一次归一化把向量变成已知的大小。",
    ),
    "next_token.title": ("The next token", "下一个词元"),
    "next_token.explanation": (
        "The vector is compared with all {words:,} words of the vocabulary; softmax turns scores into probabilities. "
        "Greedy decoding takes the first; sampling draws by these probabilities.",
        "向量与词表中全部 {words:,} 个词比较；softmax 把得分变成概率。贪心解码取第一个；采样按概率抽取。",
    ),
    "word_scores.title": ("Scores for every word", "每个词的得分"),
    "word_scores.explanation": (
        "The vector is compared with all {words:,} words of the vocabulary; softmax turns scores into probabilities. "
        "This is what stands here.",
        "向量与词表中全部 {words:,} 个词比较；softmax 把得分变成概率。这就是此处的词。",
    ),
    # ---- vectors and columns
    "embed_tokens": ("token", "词元"),
    "embed_positions": ("position", "位置"),
    "embed_segments": ("segment", "句段"),
    "enters": ("what enters the stack", "进入各层的向量"),
    "layer_input": ("input of layer {n}", "第 {n} 层的输入"),
    "layer_output": ("output of layer {n}", "第 {n} 层的输出"),
    "query": ("query: what it looks for", "查询：它在找什么"),
    "key": ("key: what it offers", "键：它提供什么"),
    "value": ("value: what it hands over", "值：它交出什么"),
    "head": ("head {n}", "头 {n}"),
    "attention_output": ("attention output", "注意力输出"),
    "read": ("what it read", "读到的内容"),
    "widened": ("widened", "展宽后"),
    "feed_forward_output": ("feed-forward output", "前馈输出"),
    "last_output": ("output of the last layer", "最后一层的输出"),
    "normalised": ("normalised", "归一化后"),
    "last_hidden": ("hidden state of the last step", "上一步的隐藏状态"),
    "last_cell": ("cell of the last step", "上一步的细胞状态"),
    "from_input": ("what the word says", "词的部分"),
    "from_state": ("what the last state says", "上一个状态的部分"),
    "from_state_reset": ("what the last state says × reset gate", "上一个状态的部分 × 重置门"),
    "kept": ("what is kept of the old", "旧的留下多少"),
    "written": ("what is written anew", "新写入的部分"),
    "squashed": ("tanh of the cell", "细胞状态的 tanh"),
    "looking_state": ("the state that looks", "在看的状态"),
    "context": ("context", "上下文向量"),
    "read_out": ("what is read out", "读出的向量"),
    "score_additive": ("additive: vᵀ tanh(W s + U h)", "加性：vᵀ tanh(W s + U h)"),
    "score_dot": ("dot product sᵀ h", "点积 sᵀ h"),
    "score_general": ("sᵀ W h", "sᵀ W h"),
    "score_concat": ("vᵀ tanh(W [s; h])", "vᵀ tanh(W [s; h])"),
    "score": ("score", "得分"),
    "masked": ("after the mask", "遮挡后"),
    "weight": ("weight", "权重"),
}
