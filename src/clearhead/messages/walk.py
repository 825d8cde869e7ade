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
    "score": ("score", "得分"),
    "masked": ("after the mask", "遮挡后"),
    "weight": ("weight", "权重"),
}
