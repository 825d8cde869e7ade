"""The questions that `clearhead explain` and the studio offer, and what can be set about each."""

SENTENCES = {
    # ---- groups
    "group.attention": ("Attention", "注意力"),
    "group.why": ("Why did it say that?", "它为什么这样说？"),
    "group.layers": ("Layer by layer", "逐层"),
    "group.neurons": ("Neurons", "神经元"),
    "group.answer": ("The answer", "答案"),
    "group.retrieval": ("A model with a library", "带资料库的模型"),
    "group.words": ("Words as vectors", "词与向量"),
    "group.model": ("The model itself", "模型本身"),
    # ---- questions
    "attention.title": ("Attention weights: who looks at whom?", "注意力权重：谁在看谁？"),
    "attention.help": (
        "The attention weights of every head, and each head in a few numbers: its entropy, how far it looks, whether "
        "it is an induction head.",
        "每个头的注意力权重，以及概括每个头的几个数：熵、看多远、是不是归纳头。",
    ),
    "query-key.title": ("Query and key: how does a head choose?", "查询与键：一个头怎样选择？"),
    "query-key.help": (
        "One head from close by: a query and the keys, number by number, become scores and then weights.",
        "近看一个头：一个查询与各个键逐项相乘，得到得分，再变成权重。",
    ),
    "attention-steps.title": (
        "Scaled dot-product attention: what does a layer do, step by step?",
        "缩放点积注意力：一层一步一步怎样算？",
    ),
    "attention-steps.help": (
        "One layer's attention in six steps: vectors, products, scaling, softmax, weighted sum, all heads joined.",
        "一层注意力的六步：向量、乘积、缩放、softmax、加权求和、合并各头。",
    ),
    "alignment-steps.title": (
        "Attention over encoder states, step by step: how is a word aligned?",
        "对编码器状态的注意力，一步一步：一个词怎样对齐？",
    ),
    "alignment-steps.help": (
        "A recurrent decoder at each word it writes: scores for all encoder states, softmax, context, and the word.",
        "循环解码器写每个词时：给编码器的各个状态打分、softmax、上下文向量，再到词。",
    ),
    "ablation.title": ("Head ablation: what is a head worth?", "消融：一个头值多少？"),
    "ablation.help": (
        "Each head is taken away in turn: how far does the model's answer move?",
        "逐个去掉每个头：模型的答案变化多大？",
    ),
    "saliency.title": ("Attribution (saliency): which words mattered?", "归因（显著性）：哪些词起了作用？"),
    "saliency.help": (
        "How much each part of the input mattered for what the model wrote, filled in, or decided.",
        "输入的每个部分对模型所写、所填或所判断的内容有多大作用。",
    ),
    "patching.title": ("Activation patching: where is it decided?", "激活修补：在哪里决定的？"),
    "patching.help": (
        "Of two texts that differ in a word: what the first makes of each layer and place is put into the second.",
        "两段只差一个词的文本：把第一段在每一层、每个位置的激活值放进第二段的计算。",
    ),
    "hidden-states.title": ("Logit lens: when does the answer appear?", "Logit lens（逐层读出）：答案何时出现？"),
    "hidden-states.help": (
        "What the model would say after each layer, its hidden states read through the head: the rank of a token, and "
        "the likeliest ones.",
        "把每一层之后的隐藏状态直接送入输出头，模型会说什么：某个词元的名次，以及最可能的词元。",
    ),
    "comparison.title": ("Logit lens, side by side: this word or that one?", "Logit lens 对比：这个词还是那个词？"),
    "comparison.help": (
        "Two or more candidates for one place, followed through the layers.",
        "同一位置的两个或更多候选词，逐层追踪。",
    ),
    "similarity.title": (
        "Representation similarity (CKA, CCA): do two layers see alike?",
        "表征相似度（CKA、CCA）：两层看法相似吗？",
    ),
    "similarity.help": (
        "Every layer compared with every other, of this model or a second one, over a text or several, one in a line.",
        "把每一层与其他每一层比较：同一模型或另一模型，一段或多段文本（每行一段）。",
    ),
    "neurons.title": ("Neuron activations: which neurons fire?", "神经元激活：哪些神经元被激活？"),
    "neurons.help": (
        "How strongly the neurons of feed-forward layers, or of recurrent cells, fire at each token; in clusters, if "
        "asked.",
        "前馈层（或循环层的细胞状态）的神经元在每个词元上的激活强度；也可按簇显示。",
    ),
    "top-tokens.title": ("Top activating tokens: what excites a neuron?", "最强激活词元：什么能激活一个神经元？"),
    "top-tokens.help": (
        "The places in a corpus, one text in a line, at which one neuron fires most strongly.",
        "在一组文本（每行一段）中，某个神经元最强的位置。",
    ),
    "neuron-probe.title": ("Neuron probe: which neuron knows it?", "神经元探测：哪个神经元知道？"),
    "neuron-probe.help": (
        "Every neuron is held against a property of the text (inside a quotation, how many tokens so far) over a "
        "corpus, one text in a line. Half of the texts choose, the other half judge.",
        "在一组文本（每行一段）上，把每个神经元与文本的一个性质（是否在引号内、已读多少词元）对照。"
        "一半文本用来挑选，另一半用来检验。",
    ),
    "store-map.title": (
        "The search, on a map: which passages lie near?",
        "检索的地图：哪些段落离得近？",
    ),
    "store-map.help": (
        "The vector of a text among those of a store's passages, drawn on a plane (PCA): the nearest ones are what a "
        "model is given to read.",
        "文本的向量与库中各段落的向量，画在一个平面上（PCA）：最近的几段就是交给模型读的。",
    ),
    "passages.title": (
        "Retrieved passages: which were looked up, and where did it look in them?",
        "检索到的段落：查到了哪些，又看了其中哪里？",
    ),
    "passages.help": (
        "For each chunk of a text the passages that a store has for it, where they agree with what was written, and "
        "how much each written token looked at each of their tokens (chunked attention).",
        "文本每一块所查到的段落、它们与所写内容一致之处，以及每个写出的词元看了段落中的哪些词元（分块注意力）。",
    ),
    "retrieval-ablation.title": (
        "Retrieval ablation: does the store matter?",
        "检索消融：资料库起作用吗？",
    ),
    "retrieval-ablation.help": (
        "Each passage is left out, then all of them, then random ones are given instead: how far does every written "
        "token move?",
        "逐个去掉每段，再全部去掉，再换成随机的段落：每个写出的词元变化多大？",
    ),
    "gates.title": ("LSTM and GRU gates: what is kept, word by word?", "LSTM 与 GRU 的门：逐词保留了什么？"),
    "gates.help": (
        "A recurrent layer over time: how far its gates stand open at each word, what the cell holds, what the hidden "
        "state says.",
        "沿时间看一个循环层：每个词上各个门开多大，细胞状态记着什么，隐藏状态说出什么。",
    ),
    "echo.title": ("Echo: how long does a word stay in the state?", "回响：一个词在状态里留多久？"),
    "echo.help": (
        "Each word is taken away in turn: how far does the recurrent state move, at that step and at all later ones?",
        "逐个去掉每个词：循环状态在那一步以及之后各步移动多远？",
    ),
    "factors.title": ("Neuron factors (NMF): which themes are there?", "神经元因子（NMF）：有哪些主题？"),
    "factors.help": (
        "The activations of many neurons, taken apart into a few factors that rise and fall along the text.",
        "把许多神经元的激活值分解成几个沿文本起伏的因子。",
    ),
    "next-token.title": ("Next-token probabilities: what may come next?", "下一个词元的概率：接下来可能是什么？"),
    "next-token.help": (
        "The likeliest next tokens, with the probabilities that the model itself gives them.",
        "最可能的下一个词元，以及模型自己给出的概率。",
    ),
    "sampling.title": ("Sampling: how is the next token drawn?", "采样：下一个词元怎样抽取？"),
    "sampling.help": (
        "The probabilities of the next token before and after temperature, top-k and top-p (nucleus sampling), and "
        "some draws.",
        "下一个词元的概率，在温度、top-k 和 top-p（核采样）之前与之后，以及若干次抽取。",
    ),
    "beams.title": ("Beam search: how is an answer searched?", "束搜索：答案是怎样搜索的？"),
    "beams.help": (
        "Beam search as a growing tree: what was followed, what was dropped, and how the ends rank.",
        "束搜索像一棵生长的树：跟随了什么，放弃了什么，最后怎样排名。",
    ),
    "cache.title": ("KV cache: what does it save?", "KV 缓存：它省下了什么？"),
    "cache.help": (
        "Every step of writing: what is computed again without a cache, and what is only read with one.",
        "写作的每一步：没有缓存时要重新计算什么，有缓存时只需读取什么。",
    ),
    "prediction.title": ("Prediction: what does it decide?", "预测：它怎样判断？"),
    "prediction.help": (
        "A classifier's labels, hidden words, whether one sentence follows another, where an answer stands.",
        "分类器的标签、被遮住的词、一句是否接着另一句、答案在哪里。",
    ),
    "neighbours.title": ("Word neighbours: which words lie near?", "近邻词：哪些词离得近？"),
    "neighbours.help": (
        "The words nearest to a word, or to a sum of words such as king - man + woman, by the cosine of their vectors.",
        "离一个词最近的词，或离词的加减（如 king - man + woman）最近的词，按向量的余弦。",
    ),
    "word-map.title": ("Word map (PCA): where do words lie?", "词的地图（PCA）：词都在哪里？"),
    "word-map.help": (
        "The vectors of some words on the plane that keeps most of their differences, and how alike each two are; "
        "beside them their one-hot vectors. An arrow joins two: man -> woman.",
        "一些词的向量，画在最能保留其差别的平面上，以及每两个词有多相似；旁边是它们的 one-hot 向量。"
        "箭头把两个词连起来：man -> woman。",
    ),
    "word-in-context.title": (
        "Word in context: does each use have its own vector?",
        "语境中的词：每次使用都有自己的向量吗？",
    ),
    "word-in-context.help": (
        "The vectors of one word in several sentences (one in each line), on a plane (PCA), and how alike they are; "
        "beside them its one row in a table. An empty line begins another meaning.",
        "同一个词在几个句子（每行一句）里的向量，画在平面上（PCA），以及它们有多相似；旁边是它在表中的唯一一行。"
        "空行开始另一个意思。",
    ),
    "walk.title": ("Forward pass: how does it get there?", "前向计算：它是怎样得到的？"),
    "walk.help": (
        "One token followed through one layer, step by step, with the actual numbers.",
        "跟随一个词元逐步穿过一层，用真实的数值。",
    ),
    "positions.title": ("Position encoding: how does it know the order?", "位置编码：它怎样知道顺序？"),
    "positions.help": (
        "The model's position schemes: vectors that are added, rotations, or numbers for distances.",
        "模型的位置方案：相加的向量、旋转，或表示距离的数。",
    ),
    "drawing-steps.title": ("What does the model expect at each step?", "模型在每一步预期画出什么？"),
    "forward-process.title": ("How does a picture become noise?", "图片如何变成噪声？"),
    "word-maps.title": ("Where in the picture does each word act?", "每个词作用在图片的哪里？"),
    "noise-schedule.title": ("How much of the picture is left at each step?", "每一步还剩下多少图片？"),
    "length-curve.title": (
        "BLEU by source length: what happens as the sentence grows?",
        "BLEU 与原文长度：句子变长时会怎样？",
    ),
    "length-curve.help": (
        "How good a shipped translator is on short and on long sentences, as it was measured, beside others.",
        "内置的翻译模型在短句和长句上的表现（已测量），可与其他模型并列。",
    ),
    "parameters.title": ("Parameters: where do they live?", "参数：都在哪里？"),
    "parameters.help": ("Every part of the model with its shape and size.", "模型的每个部分及其形状和大小。"),
    "write.title": ("Generation: let it write", "生成：让它写"),
    "write.help": (
        "The model goes on with the text, token by token, or writes its translation.",
        "模型逐个词元地续写文本，或写出译文。",
    ),
    # ---- what can be set: how a form calls it
    "label.layers": ("layers", "层"),
    "label.heads": ("heads", "头"),
    "label.layer": ("layer", "层"),
    "label.head": ("head", "头"),
    "label.words": ("whole words", "整词"),
    "label.side": ("side", "部分"),
    "label.target": ("what it writes", "它写出的"),
    "label.position": ("token", "词元"),
    "label.positions": ("tokens", "词元"),
    "label.outputs": ("tokens", "词元"),
    "label.chosen": ("chosen word", "所选的词"),
    "label.against": ("rather than", "而不是"),
    "label.how": ("taken away by", "去掉方式"),
    "label.k": ("how many", "多少个"),
    "label.method": ("method", "方法"),
    "label.max_new_tokens": ("new tokens", "新词元"),
    "label.steps": ("steps", "步数"),
    "label.tap": ("tensor", "张量"),
    "label.by": ("one at a time", "逐个"),
    "label.clusters": ("clusters", "簇"),
    "label.store": ("store", "资料库"),
    "label.neighbors": ("passages", "段落数"),
    "label.ask": ("a question", "是提问"),
    "label.background": ("others", "其余"),
    "label.seed": ("seed", "种子"),
    "label.neuron": ("neuron", "神经元"),
    "label.property": ("property", "性质"),
    "label.direction": ("direction", "方向"),
    "label.around": ("tokens around", "前后词元"),
    "label.factors": ("factors", "因子"),
    "label.other": ("second model", "第二个模型"),
    "label.measure": ("measure", "度量"),
    "label.other_layers": ("its layers", "其层"),
    "label.unbiased": ("unbiased", "无偏"),
    "label.variance": ("variance", "方差"),
    "label.skip": ("skip", "跳过"),
    "label.candidates": ("candidates", "候选词"),
    "label.num_beams": ("beams", "束"),
    "label.length_penalty": ("length penalty", "长度惩罚"),
    "label.beside": ("others", "其他"),
    "label.numbers": ("numbers", "数值个数"),
    "label.temperature": ("temperature", "温度"),
    "label.top_k": ("top-k", "top-k"),
    "label.top_p": ("top-p", "top-p"),
    "label.draws": ("draws", "抽取次数"),
    "label.published": ("published size", "已公开的规模"),
    "label.choices": ("choices", "选项"),
    "label.others": ("beside it", "并列的模型"),
    "label.word": ("word", "词"),
    "label.table": ("held against", "对照的表"),
    "label.length": ("length", "长度"),
    # ---- what can be set: what it means, where several questions share it
    "set.layer": ("Which layer, counted from 0; -1 is the last.", "哪一层，从 0 数起；-1 是最后一层。"),
    "set.layers": (
        "Which layers, counted from 0: 3, or 0-2,5. Nothing: all of them.",
        "哪些层，从 0 数起：3，或 0-2,5。留空：全部。",
    ),
    "set.head": ("Which head of the layer, counted from 0.", "该层的哪个头，从 0 数起。"),
    "set.heads": ("Which heads of each layer. Nothing: all of them.", "每层的哪些头。留空：全部。"),
    "set.position": ("Which token, counted from 0; -1 is the last.", "哪个词元，从 0 数起；-1 是最后一个。"),
    "set.answer_position": (
        "Whose answer. Which token, counted from 0; -1 is the last. Nothing: the next or hidden word.",
        "哪个位置的答案。词元从 0 数起；-1 是最后一个。留空：下一个词，或被遮住的词。",
    ),
    "set.positions": (
        "Which tokens, counted from 0: 3, or 0-2,5. Nothing: all of them.",
        "哪些词元，从 0 数起：3，或 0-2,5。留空：全部。",
    ),
    "set.target": (
        "What the model is made to write. Nothing: its own answer.",
        "让模型写出的内容。留空：它自己的答案。",
    ),
    "set.written_after": (
        "What stands after the text. Nothing: what the model writes.",
        "文本之后的内容。留空：由模型来写。",
    ),
    "set.passages.store": (
        "The store in which passages are looked up: its name or folder. Nothing: the one that the model was loaded "
        "with.",
        "在哪个资料库里查段落：名称或文件夹。留空：加载模型时给出的那个。",
    ),
    "set.passages.neighbors": (
        "How many passages are looked up for every chunk. Nothing: 2.",
        "每一块查多少个段落。留空：2。",
    ),
    "set.passages.ask": (
        "Whether the text is a question, to be laid so that it ends with a chunk and what is found acts on the first "
        "word of the answer; auto: a short text that ends with a question mark is.",
        "文本是否作为提问：排成恰好在一块的末尾结束，让查到的段落从答案的第一个词起作用。"
        "自动：以问号结尾的短文本就是。",
    ),
    "set.store-map.k": ("How many of the nearest passages are shown.", "显示最近的多少个段落。"),
    "set.store-map.background": (
        "How many others are shown behind them, drawn at random.",
        "另外随机抽取多少个作为背景。",
    ),
    "set.written_so_far": (
        "What the model has written so far. Nothing: it begins.",
        "模型到目前为止写出的内容。留空：从头开始。",
    ),
    "set.side": (
        "Whose attention: within the encoder or the decoder, or from the decoder to the encoder.",
        "哪里的注意力：编码器内部、解码器内部，或从解码器到编码器。",
    ),
    "set.stack": ("Whose neurons.", "哪一部分的神经元。"),
    "set.seed": ("The same seed gives the same answer.", "相同的种子给出相同的结果。"),
    "set.max_new_tokens": (
        "Let the model go on with the text for so many tokens.",
        "让模型接着文本再写这么多个词元。",
    ),
    "set.write_at_most": ("How many tokens to write at most.", "最多写多少个词元。"),
    # ---- and where it is one question's own
    "set.attention.words": ("Whole words instead of tokens.", "用整词代替词元。"),
    "set.alignment-steps.k": ("How many words to list for each step.", "每一步列出多少个词。"),
    "set.ablation.chosen": (
        "Follow the score of this one, instead of all probabilities. A word, or a label of a classifier. In double "
        'quotes, exactly that token: "is".',
        '追踪它的得分，而不是所有的概率。一个词，或分类器的一个标签。放在双引号里则正是该词元："is"。',
    ),
    "set.ablation.how": (
        "A head says nothing, or always what it says on average.",
        "头什么也不说，或总是说它的平均值。",
    ),
    "set.ablation.k": ("How many answers to list, with and without the head.", "列出多少个答案，有这个头和没有它。"),
    "set.saliency.method": ("How it is measured.", "怎样衡量。"),
    "set.saliency.max_new_tokens": (
        "How many tokens to write and explain; 0 explains the text itself.",
        "写出并解释多少个词元；0 则解释文本本身。",
    ),
    "set.saliency.outputs": (
        "Which tokens to explain, counted from 0: 3, or 0-2,5.",
        "解释哪些词元，从 0 数起：3，或 0-2,5。",
    ),
    "set.saliency.target": (
        "What the model is made to say: a text; a hidden word; a label.",
        "让模型说什么：一段文本、一个被遮住的词，或一个标签。",
    ),
    "set.saliency.against": (
        'Why this and not that? A word, or a label of a classifier. In double quotes, exactly that token: "is".',
        '为什么是这个而不是那个？一个词，或分类器的一个标签。放在双引号里则正是该词元："is"。',
    ),
    "set.saliency.steps": ("Points that integrated gradients looks at.", "积分梯度所取的点数。"),
    "set.patching.tap": ("Which tensor of each layer.", "每一层的哪个张量。"),
    "set.patching.by": ("One position at a time, or one head.", "逐个位置，或逐个头。"),
    "set.patching.chosen": (
        "The answer that is followed. Nothing: the first text's own. A word, or a label of a classifier. In double "
        'quotes, exactly that token: "is".',
        '所追踪的答案。留空：第一段文本自己的答案。一个词，或分类器的一个标签。放在双引号里则正是该词元："is"。',
    ),
    "set.patching.against": ("The answer it is held against.", "与之相比的答案。"),
    "set.patching.side": ("Whose tensor.", "哪一部分的张量。"),
    "set.patching.k": ("How many answers to list for each text.", "每段文本列出多少个答案。"),
    "set.hidden-states.positions": (
        "Which tokens, counted from 0: 3, or 0-2,5. Nothing: all, or the hidden words.",
        "哪些词元，从 0 数起：3，或 0-2,5。留空：全部，或被遮住的词。",
    ),
    "set.hidden-states.chosen": (
        'The token to follow. Nothing: the one that comes next. A word; in double quotes, exactly that token: "is".',
        '要追踪的词元。留空：接下来的那个。可写一个词；放在双引号里则正是该词元："is"。',
    ),
    "set.hidden-states.k": ("How many tokens to list.", "列出多少个词元。"),
    "set.comparison.candidates": (
        "Words with commas between: is, are. Nothing: the two likeliest.",
        "用逗号分开的词：is, are。留空：最可能的两个。",
    ),
    "set.comparison.position": (
        "Which token, counted from 0; -1 is the last. Nothing: the last, or the first hidden word.",
        "哪个词元，从 0 数起；-1 是最后一个。留空：最后一个，或第一个被遮住的词。",
    ),
    "set.similarity.other": (
        "A second model to compare with. Nothing: the layers of this one.",
        "用来比较的另一个模型。留空：本模型的各层。",
    ),
    "set.word-in-context.word": (
        "The word whose uses are looked at. Nothing: the longest word that all sentences have.",
        "看哪个词的用法。留空：所有句子都有的最长的词。",
    ),
    "set.word-in-context.layers": (
        "Which layer's states, 0 is the embedding, -1 the last. Several, such as 1-3, or all, are averaged.",
        "取哪一层的状态，0 是嵌入，-1 是最后一层。几层（如 1-3）或 all 则取平均。",
    ),
    "set.word-in-context.table": (
        "A table of word vectors, such as glove. Nothing: the model's own.",
        "一张词向量表，如 glove。留空：模型自己的表。",
    ),
    "set.similarity.measure": ("CKA, or the mean canonical correlation.", "CKA，或平均典型相关。"),
    "set.similarity.layers": (
        "Which layers; 0 is the embedding. Nothing: all of them.",
        "哪些层；0 是嵌入。留空：全部。",
    ),
    "set.similarity.other_layers": (
        "Which layers of the second model. Nothing: all of them.",
        "第二个模型的哪些层。留空：全部。",
    ),
    "set.similarity.unbiased": (
        "CKA: an estimate that few tokens do not raise.",
        "CKA：词元少时不会偏高的估计。",
    ),
    "set.similarity.variance": (
        "CCA: the share of each layer's variance to keep.",
        "CCA：每层保留的方差比例。",
    ),
    "set.similarity.skip": (
        "Leave out so many tokens at the beginning of each text.",
        "每段文本开头略去多少个词元。",
    ),
    "set.neurons.k": ("How many neurons to show, the strongest.", "显示多少个最强的神经元。"),
    "set.neurons.clusters": (
        "Put neurons that fire together into so many groups.",
        "把一起激活的神经元分成这么多组。",
    ),
    "set.top-tokens.neuron": (
        "Which one, counted from 0. Nothing: one that the first text excites.",
        "哪一个，从 0 数起。留空：由第一段文本激活的一个。",
    ),
    "set.top-tokens.k": ("How many places to show.", "显示多少个位置。"),
    "set.top-tokens.around": ("How many tokens to show on either side.", "两侧各显示多少个词元。"),
    "set.neuron-probe.property": (
        "What a neuron is held against: inside quotation marks or brackets, how many tokens have been read, or how "
        "many since a sentence ended.",
        "与神经元对照的性质：在引号内或括号内、已读多少词元，或上一句结束后读了多少词元。",
    ),
    "set.neuron-probe.k": ("How many neurons to list.", "列出多少个神经元。"),
    "set.gates.direction": (
        "Of a layer that reads both ways: which of them.",
        "如果该层双向阅读：看哪个方向。",
    ),
    "set.echo.side": ("Whose state; auto: the encoder's.", "哪一部分的状态；自动：编码器。"),
    "set.gates.k": (
        "How many units to show, those that change most over the text.",
        "显示多少个单元，取在文本中变化最大的。",
    ),
    "set.gates.side": ("Whose layer; auto: the decoder's.", "哪一部分的层；自动：解码器。"),
    "set.factors.factors": (
        "How many. Nothing: six, or fewer for a short text.",
        "多少个因子。留空：六个，文本较短时更少。",
    ),
    "set.factors.k": ("How many neurons to list for each factor.", "每个因子列出多少个神经元。"),
    "set.neighbours.k": ("How many words to list.", "列出多少个词。"),
    "set.next-token.k": ("How many tokens to list.", "列出多少个词元。"),
    "set.sampling.temperature": ("Above 1: bolder; below 1: safer.", "大于 1 更大胆；小于 1 更稳妥。"),
    "set.sampling.top_k": ("Only the k likeliest tokens.", "只留最可能的 k 个词元。"),
    "set.sampling.top_p": (
        "Only the likeliest that together reach this probability (nucleus sampling).",
        "只留总概率达到此值的最可能词元（核采样）。",
    ),
    "set.sampling.draws": ("How many tokens to draw.", "抽取多少个词元。"),
    "set.sampling.k": ("How many candidates to name.", "列出多少个候选词元。"),
    "set.beams.num_beams": (
        "How many texts are followed at once; 1 takes the likeliest each time.",
        "同时跟随多少条文本；1 表示每次取最可能的。",
    ),
    "set.beams.length_penalty": (
        "Above 1 favours longer answers. Nothing: the model's own.",
        "大于 1 偏好较长的答案。留空：模型自己的设定。",
    ),
    "set.beams.beside": (
        "With one beam: how many of the tokens not taken to show.",
        "只有一条束时：显示多少个未选的词元。",
    ),
    "set.prediction.k": (
        "How many candidates to list for a hidden word or an answer.",
        "为被遮住的词或答案列出多少个候选。",
    ),
    "set.prediction.choices": (
        "Multiple choice: the continuations, with commas between.",
        "多项选择：用逗号分开的续写。",
    ),
    "set.walk.position": (
        "Which token, counted from 0; -1 is the last. Nothing: the last word.",
        "哪个词元，从 0 数起；-1 是最后一个。留空：最后一个词。",
    ),
    "set.walk.numbers": ("How many numbers of each vector to show.", "每个向量显示多少个数。"),
    "set.walk.k": ("How many guesses to list at the end.", "最后列出多少个猜测。"),
    "set.walk.side": (
        "Which stack is followed; auto: the decoder.",
        "跟随哪一部分；自动：解码器。",
    ),
    "set.positions.length": ("For texts of up to so many tokens.", "最长多少个词元的文本。"),
    "set.positions.layer": (
        "Where each layer has numbers of its own: which one.",
        "如果每层各有自己的数：看哪一层。",
    ),
    "set.length-curve.others": (
        "Other shipped translators to show beside it, with commas between.",
        "与之并列的其他内置翻译模型，用逗号分开。",
    ),
    "set.parameters.published": (
        "A published size instead, by its name: gpt2. No weights are needed.",
        "改看一个已公开的规模，按名称：gpt2。不需要权重。",
    ),
    # ---- values to choose from
    "choice.auto": ("auto", "自动"),
    "choice.yes": ("yes", "是"),
    "choice.no": ("no", "否"),
    "choice.encoder": ("encoder", "编码器"),
    "choice.decoder": ("decoder", "解码器"),
    "choice.cross": ("cross", "交叉"),
    "choice.zero": ("zero", "置零"),
    "choice.mean": ("mean", "取平均"),
    "choice.gradient-x-input": ("gradient-x-input", "梯度 × 输入"),
    "choice.gradient-norm": ("gradient-norm", "梯度范数"),
    "choice.integrated-gradients": ("integrated-gradients", "积分梯度"),
    "choice.occlusion": ("occlusion", "遮挡"),
    "choice.output": ("output", "输出"),
    "choice.input": ("input", "输入"),
    "choice.position": ("position", "位置"),
    "choice.head": ("head", "头"),
    "choice.forward": ("forward", "正向"),
    "choice.reverse": ("reverse", "反向"),
    "choice.inside-quotes": ("inside quotation marks", "在引号内"),
    "choice.inside-brackets": ("inside brackets", "在括号内"),
    "choice.sentence-position": ("tokens since a sentence ended", "句子结束后的词元数"),
    "choice.cka": ("cka", "CKA"),
    "choice.cca": ("cca", "CCA"),
    # ---- what is wrong with what was asked
    "unknown": (
        "There is no question {name}.{near} There are {known}.",
        "没有问题 {name}。{near}现有的问题：{known}。",
    ),
    "no_such_setting": (
        "{question} has no parameter {name}; it has {known}.{near}",
        "{question} 没有参数 {name}；它有 {known}。{near}",
    ),
    "nothing_to_set": (
        "{question} has no parameter {name}; it has none.",
        "{question} 没有参数 {name}；它没有任何参数。",
    ),
    "text_is_string": ("The {which} must be a string, not {got}.", "{which}必须是字符串，而不是 {got}。"),
    "the_text": ("text", "文本"),
    "the_second_text": ("second text", "第二段文本"),
    "no_text": ("There is no text to explain. Give at least one word.", "没有要解释的文本。请至少给出一个词。"),
    "one_text": (
        "{question} looks at one text: leave the second one out.",
        "{question} 只看一段文本：请去掉第二段。",
    ),
    "two_texts": (
        "{question} is about two texts: give the second one too.",
        "{question} 涉及两段文本：请同时给出第二段。",
    ),
    "load_first": (
        "{name} has to be loaded before it is asked: {model}.",
        "{name} 必须先加载：{model}。",
    ),
    "indices": (
        "{name} is {value}; it must be numbers such as 3, or 0-2,5.",
        "{name} 是 {value}；应是如 3 或 0-2,5 这样的数。",
    ),
    "backwards": (
        "{name}: {value} counts backwards; write {first}-{last}.",
        "{name}：{value} 是倒着数的；请写成 {first}-{last}。",
    ),
    "too_many_indices": ("{name}: {most:,} numbers are the most.", "{name}：最多 {most:,} 个数。"),
    "store_name": (
        "{name} is {value}; it must be the name or the folder of a store.",
        "{name} 是 {value}；它必须是资料库的名称或文件夹。",
    ),
    "model_name": (
        "{name} is {value}; it must be the name of a model.",
        "{name} 是 {value}；应是一个模型的名称。",
    ),
    "text-picture-matrix.title": ("Which text fits which picture?", "哪段文本配哪张图片？"),
    "text-picture-matrix.help": (
        "Every text with every picture, as CLIP compares them: texts with a semicolon between, and as the second text "
        "the paths of pictures, or a folder.",
        "每段文本与每张图片，按 CLIP 的方式比较：文本之间用分号隔开，第二个文本是图片的路径或文件夹。",
    ),
}
