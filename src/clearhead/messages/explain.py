"""Why a model cannot answer a question, and what is wrong with what was asked of it."""

SENTENCES = {
    # ---- why a model cannot answer
    "reads_several_texts": (
        "This model is loaded for {task}, which reads several texts at once.",
        "此模型按 {task} 加载，它要同时读多段文本。",
    ),
    "words_in_a_second_stream": (
        "{family} guesses words in a stream of its own, which this question does not show.",
        "{family} 在另一条流里猜词，这个问题看不到它。",
    ),
    "says_no_words": (
        "This model is loaded for {task}; only a language model says words.",
        "此模型按 {task} 加载；只有语言模型才会说出词。",
    ),
    "does_not_write": (
        "This model is loaded for {task} and does not write. Choose a GPT-like model or an encoder–decoder.",
        "此模型按 {task} 加载，不会写作。请选择类 GPT 模型或编码器–解码器模型。",
    ),
    "no_probabilities": (
        "This model is loaded for {task}, which gives no probabilities to compare.",
        "此模型按 {task} 加载，它不给出可比较的概率。",
    ),
    "no_probabilities_load": (
        "This model is loaded for {task}, which gives no probabilities to compare. Load it as a language model or a "
        "classifier (task=…).",
        "此模型按 {task} 加载，它不给出可比较的概率。请把它作为语言模型或分类器加载（task=…）。",
    ),
    "gives_vectors": (
        "This model is loaded for {task}, which gives vectors and no answers.",
        "此模型按 {task} 加载，它只给出向量，不给出答案。",
    ),
    "ask_for_next_token": (
        "This model writes: ask for its next token instead.",
        "此模型会写作：请改问它的下一个词元。",
    ),
    "looks_at_memory": (
        "{family} also looks at what it remembers, which has no tokens to show. Ask for its attention weights, which "
        "show the memory as one.",
        "{family} 还会看它记住的内容，那里没有可显示的词元。请看它的注意力权重，那里把记忆显示为一项。",
    ),
    "memory_for_cache": (
        "{family} keeps a memory of earlier states in place of a cache.",
        "{family} 用对先前状态的记忆代替缓存。",
    ),
    "state_for_cache": (
        "{family} carries a state of one size from word to word, so there is nothing to cache.",
        "{family} 从一个词到下一个词只传递大小固定的状态，因此没有可缓存的内容。",
    ),
    "order_in_state": (
        "{family} is told no positions: it reads word by word, and the order is in its state.",
        "{family} 不被告知位置：它逐词阅读，顺序存在状态里。",
    ),
    "no_attention": (
        "{family} has no attention: its layers pass a state on instead.",
        "{family} 没有注意力：它的各层传递的是状态。",
    ),
    "attends_to_states": (
        "{family} looks at its encoder's states with one small network that has no heads. Ask for alignment-steps.",
        "{family} 用一个没有“头”的小网络看编码器的状态。请问 alignment-steps。",
    ),
    "attends_in_layers": (
        "{family} has its attention in its layers, not over a recurrent encoder's states. Ask for attention-steps.",
        "{family} 的注意力在各层之中，而不是看循环编码器的状态。请问 attention-steps。",
    ),
    "looks_at_no_states": (
        "{family} has no attention here: all it knows of earlier words is in the state it was handed.",
        "这里的 {family} 没有注意力：关于先前的词，它所知的全部都在交给它的状态里。",
    ),
    "no_feedforward": (
        "{family} has neither feed-forward nor recurrent layers, so it has no neurons to look at.",
        "{family} 既没有前馈层也没有循环层，因此没有可看的神经元。",
    ),
    "no_recurrence": (
        "{family} has no recurrent layers: nothing is carried from word to word, so there are no gates to look at.",
        "{family} 没有循环层：词与词之间不传递状态，因此没有可看的门。",
    ),
    "reads_one_way": (
        "Layer {layer} reads the text in one direction only: leave direction out.",
        "第 {layer} 层只朝一个方向读文本：请去掉 direction。",
    ),
    "forward_or_reverse": (
        "direction is {direction}; it can be 'forward' or 'reverse'.",
        "direction 是 {direction}；可以是 'forward' 或 'reverse'。",
    ),
    "no_such_part": (
        "This layer has no {name}; it has {known}.",
        "此层没有 {name}；它有 {known}。",
    ),
    "part_input_gate": ("input gate: what is let in", "输入门：放进多少"),
    "part_forget_gate": ("forget gate: what is kept", "遗忘门：保留多少"),
    "part_reset_gate": ("reset gate: what of the past is used", "重置门：用上多少过去"),
    "part_update_gate": ("update gate: what stays as it was", "更新门：多少保持不变"),
    "part_candidate": ("candidate: what could be written", "候选：可写入的内容"),
    "part_output_gate": ("output gate: what is shown", "输出门：露出多少"),
    "part_cell": ("cell: what is remembered", "细胞状态：记住的内容"),
    "part_hidden": ("hidden state: what is said", "隐藏状态：说出的内容"),
    # ---- properties of a text that a neuron may follow
    "no_property": (
        "There is no property {name}; there are {known}.{near}",
        "没有名为 {name} 的性质；现有：{known}。{near}",
    ),
    "property_never_changes": (
        "{property} is the same at every token of these texts, so no neuron can be told by it. Give texts in which it "
        "changes, half of which choose and half of which judge.",
        "在这些文本的每个词元上 {property} 都一样，无法据此辨认神经元。请给出它有变化的文本：一半用来挑选，"
        "一半用来检验。",
    ),
    "needs_sklearn": (
        "{what} needs scikit-learn: pip install scikit-learn",
        "{what}需要 scikit-learn：pip install scikit-learn",
    ),
    "this_question": ("This question", "这个问题"),
    "clusters": ("A clustering", "聚类"),
    "factors": ("A factorisation", "因子分解"),
    # ---- numbers that point somewhere
    "a_layer": ("layer", "层"),
    "a_head": ("head", "头"),
    "a_neuron": ("neuron", "神经元"),
    "a_position": ("position", "位置"),
    "no_curve": (
        "How {name} translates long sentences was not measured here. It was for: {known}.",
        "这里没有测量过 {name} 翻译长句的表现。测量过的有：{known}。",
    ),
    "curves_differ": (
        "{models} were measured on different sentences ({data}), so their curves cannot stand side by side.",
        "{models} 是在不同的句子上测量的（{data}），曲线不能放在一起。",
    ),
    "not_an_index": ("A {name} is a whole number, not {value}.", "{name}应是整数，而不是 {value}。"),
    "no_such_index": (
        "There is no {name} {value}: {owner}, counted from 0.",
        "没有编号为 {value} 的{name}：{owner}，从 0 数起。",
    ),
    "empty_list": (
        "The list of {name}s is empty. Leave it out for all of them.",
        "{name}的列表是空的。想要全部，就不要填。",
    ),
    "not_a_count": (
        "{name} is {value}; it is a whole number, {least} or more.",
        "{name} 是 {value}；应是不小于 {least} 的整数。",
    ),
    "model_has_layers": ("the model has {count} layers", "模型有 {count} 层"),
    "encoder_has_layers": ("the encoder has {count} layers", "编码器有 {count} 层"),
    "decoder_has_layers": ("the decoder has {count} layers", "解码器有 {count} 层"),
    "there_are_layers": ("there are {count} layers", "共有 {count} 层"),
    "layers_from_embedding": (
        "there are layers 0 (the embedding) to {last}",
        "层的编号从 0（嵌入）到 {last}",
    ),
    "layer_has_heads": ("a layer has {count} heads", "每层有 {count} 个头"),
    "layer_has_neurons": ("a layer has {count} neurons", "每层有 {count} 个神经元"),
    "there_are_units": ("there are {count} tokens", "共有 {count} 个词元"),
    "units_look": ("{count} tokens look", "有 {count} 个词元在看"),
    # ---- stacks and sides
    "one_stack": ("one stack", "一个堆栈"),
    "two_stacks": ("an encoder and a decoder", "编码器和解码器"),
    "no_side": (
        "{family} has {shape}: side is {sides}, not {side}.",
        "{family} 有{shape}：side 可以是 {sides}，不能是 {side}。",
    ),
    "side_of_one_stack": (
        "side is for encoder–decoders; this model has one stack: leave it out.",
        "side 只用于编码器–解码器模型；此模型只有一个堆栈：请去掉它。",
    ),
    "encoder_or_decoder": (
        "side is {side}; it can be the encoder or the decoder.",
        "side 是 {side}；可以是 encoder 或 decoder。",
    ),
    # ---- what is written
    "nothing_written": (
        "Without new tokens nothing is written. Give a target, or let the model write.",
        "没有新词元，就什么也没写。请给出要写的内容，或让模型写。",
    ),
    "empty_target": (
        "The target is what the model is made to write: give at least one word.",
        "这里要给出让模型写的内容：请至少给出一个词。",
    ),
    "target_is_a_text": (
        "The target is a text that the model is made to write, not {value}.",
        "这里要给出让模型写的文本，而不是 {value}。",
    ),
    "too_long_together": (
        "Together that is {count} tokens; this model reads at most {most}.",
        "合起来有 {count} 个词元；此模型最多读 {most} 个。",
    ),
    "no_next_token": (
        "{family} loaded for {task} has no next token: it does not read left to right with a language head. To guess "
        "hidden words, use fill.",
        "按 {task} 加载的 {family} 没有下一个词元：它不是带语言模型头、从左到右阅读的模型。要猜被遮住的词，请用 fill。",
    ),
    "only_goes_on": (
        "{name} is for a model that reads one text and writes another; this one only goes on.",
        "{name} 用于读一段文本、写另一段文本的模型；此模型只会续写。",
    ),
    "knows_no_languages": (
        "This model knows no languages by name: leave src_lang and tgt_lang out.",
        "此模型不认识语言名称：请去掉 src_lang 和 tgt_lang。",
    ),
    "no_start_token": (
        "The configuration does not say which token starts the output. For mBART, give tgt_lang.",
        "配置没有说明输出以哪个词元开始。对 mBART，请给出 tgt_lang。",
    ),
    # ---- answers and their places
    "answer_next": ("the next token", "下一个词元"),
    "answer_hidden": ("the hidden word", "被遮住的词"),
    "answer_label": ("the label", "标签"),
    "second_follows": ("the second text follows", "第二段接得上"),
    "second_does_not": ("it does not", "接不上"),
    "one_label": (
        "The whole text has one label: leave the position out.",
        "整段文本只有一个标签：请去掉位置。",
    ),
    "one_label_for_all": (
        "A label is one answer for the whole text: leave out which tokens to explain.",
        "标签是对整段文本的一个答案：请不要指定解释哪些词元。",
    ),
    "say_which_position": (
        "Every token has an answer of its own. Say which position is meant.",
        "每个词元各有自己的答案。请说明是哪个位置。",
    ),
    "mask_or_say_position": (
        "Every token has an answer of its own. Write {mask} in place of a word, or say which position is meant.",
        "每个词元各有自己的答案。请用 {mask} 代替一个词，或说明是哪个位置。",
    ),
    "no_mask": (
        "There is no hidden word in the text. Write {mask} for one, or say which positions.",
        "文本中没有被遮住的词。请用 {mask} 代替一个词，或说明是哪些位置。",
    ),
    "no_label": ("There is no label {label}; there are {known}.{near}", "没有标签 {label}；现有 {known}。{near}"),
    "choose_a_label": (
        "This model scores each label by itself. Choose one: {labels}.",
        "此模型对每个标签单独打分。请选择一个：{labels}。",
    ),
    # ---- attention
    "attention_not_computed": (
        "The {side}-attention was not computed on this text.",
        "在这段文本上没有计算 {side} 注意力。",
    ),
    "no_words_here": (
        "This input is not made of words: leave whole words out.",
        "这个输入不是由词组成的：请不要选择整词。",
    ),
    "head_left_out": (
        "Head {head} of layer {layer} is not in this finding: it has layers {layers}, heads {heads}.",
        "这里没有第 {layer} 层的头 {head}：只有层 {layers}，头 {heads}。",
    ),
    "no_head_number": ("A head has no {name}; it has {known}.{near}", "头没有 {name}；它有 {known}。{near}"),
    "induction_in_one_stack": (
        "Induction heads are looked for in one stack; an encoder–decoder has two. Load a GPT-like model.",
        "归纳头要在一个堆栈里找；编码器–解码器模型有两个。请加载类 GPT 模型。",
    ),
    "repetition_needs": (
        "Repetition needs at least two tokens that stand twice, in at least one row.",
        "重复至少需要两个各出现两次的词元，且至少一行。",
    ),
    "ablate_how": (
        "A head is taken away by how='zero' or how='mean', not {how}.",
        "去掉一个头的方式是 how='zero' 或 how='mean'，不是 {how}。",
    ),
    "probabilities_move": (
        "how far the probabilities of {answer} move, in bits",
        "{answer}的概率变化，以比特计",
    ),
    "score_change": ("change of the score of {name}", "{name} 的得分变化"),
    # ---- activation patching
    "choose_the_answer_too": (
        "An answer is held against another: choose the answer too.",
        "要与另一个答案相比：请同时选择答案。",
    ),
    "same_answers": (
        "The answer and what it is held against are the same. Choose two.",
        "答案和与之相比的是同一个。请选择两个。",
    ),
    "tap_is_a_name": ("A tap is the name of a tensor, not {got}.", "tap 是张量的名称，而不是 {got}。"),
    "no_tensor": (
        "A layer has no tensor {tap}; it has {known}.{near}",
        "每层没有张量 {tap}；它有 {known}。{near}",
    ),
    "masks_differ": (
        "The hidden word stands at another place in the two texts: hide the same one in both.",
        "两段文本中被遮住的词位置不同：请遮住同一个位置。",
    ),
    "same_texts": (
        "The two texts are the same to this model: there is nothing to swap. Change a word in one.",
        "对此模型来说两段文本相同：没有可交换的内容。请改动其中一个词。",
    ),
    "lengths_differ": (
        "The clean text has {clean} tokens and the corrupted one {corrupted}, so positions do not correspond. Change a "
        "word for one of as many tokens.\nclean:      {clean_units}\ncorrupted:  {corrupted_units}",
        "原文有 {clean} 个词元，改动后的有 {corrupted} 个，位置对不上。请换成词元数相同的词。\n"
        "原文：　　{clean_units}\n改动后：　{corrupted_units}",
    ),
    "shapes_differ": (
        "{tap} has another shape in the two texts. Give texts of as many tokens.",
        "{tap} 在两段文本中的形状不同。请给出词元数相同的文本。",
    ),
    "nothing_to_bring_back": (
        "Both texts give the same {metric}, so there is nothing to bring back. Change a word that matters, or choose "
        "another answer.",
        "两段文本给出相同的{metric}，没有可恢复的内容。请改动一个起作用的词，或选择另一个答案。",
    ),
    "score_of": ("score of {answer}", "{answer} 的得分"),
    "score_above": ("score of {answer} above that of {other}", "{answer} 比 {other} 高出的得分"),
    "swap_cross_attention": (
        "To swap what the decoder takes from the encoder, swap cross_attention.output of the decoder.",
        "要交换解码器从编码器取得的内容，请交换解码器的 cross_attention.output。",
    ),
    "swap_by": (
        "Tensors are swapped by='position' or by='head', not {by}.",
        "张量按 by='position' 或 by='head' 交换，不是 {by}。",
    ),
    "no_heads_in_tensor": (
        "{tap} is not split into heads; swap it by position, or take attention.heads.",
        "{tap} 没有分成头；请按位置交换，或改用 attention.heads。",
    ),
    "head_at_all_positions": (
        "A head is swapped at all positions: leave the positions out, or swap by position.",
        "一个头在所有位置上一起交换：请去掉位置，或按位置交换。",
    ),
    "positions_for_all_heads": (
        "Positions are swapped for all heads together: leave the heads out, or swap by head.",
        "位置是对所有头一起交换的：请去掉头，或按头交换。",
    ),
    "no_row_per_unit": (
        "{tap} does not have one row for each token: it cannot be swapped by position.",
        "{tap} 不是每个词元一行：不能按位置交换。",
    ),
    # ---- the logit lens
    "chosen_or_candidates": (
        "Give the chosen token, or candidates to compare, and not both.",
        "请给出所选的词元，或要比较的候选词，不要两者都给。",
    ),
    "candidates_at_one_position": (
        "Candidates are compared at one position, not at {count}.",
        "候选词在一个位置上比较，不能在 {count} 个位置上。",
    ),
    "two_candidates": (
        "A comparison needs a list of two candidates or more.",
        "比较需要两个或更多候选词。",
    ),
    "one_for_each": (
        "{count} tokens are chosen for {places} positions. Give one for all, or one for each.",
        "为 {places} 个位置选了 {count} 个词元。请给一个用于全部，或每个位置一个。",
    ),
    # ---- attribution
    "no_method": ("There is no method {method}.{near} There are {known}.", "没有方法 {method}。{near}现有 {known}。"),
    "no_gradients": (
        "A model of {weights} weights has no gradients. Use method='occlusion', or load it without quantize=.",
        "{weights} 权重的模型没有梯度。请用 method='occlusion'，或加载时不用 quantize=。",
    ),
    "nothing_to_attribute": (
        "This model is loaded for {task}, whose answer saliency does not explain. Load it for a language, a "
        "sequence-classification or a token-classification task.",
        "此模型按 {task} 加载，显著性不解释它的答案。请按语言模型、序列分类或词元分类任务加载。",
    ),
    "nothing_before": (
        "Nothing comes before the first token, so there is nothing to explain it with.",
        "第一个词元之前什么也没有，无从解释。",
    ),
    "no_token_to_explain": (
        "There is no token to explain. Give a longer text, or let the model write.",
        "没有要解释的词元。请给出更长的文本，或让模型写。",
    ),
    "entries_for_outputs": (
        "{name} has {count} entries for {outputs} outputs. Give one for all, or one for each.",
        "{name} 有 {count} 项，而输出有 {outputs} 个。请给一项用于全部，或每个输出一项。",
    ),
    # ---- neurons, factors, similarity
    "texts_is_a_list": (
        "texts is a list of texts, or anything that gives them one by one; this is a single string.",
        "texts 应是一组文本；这里只有一个字符串。",
    ),
    "no_texts": ("There are no texts. Give at least one.", "没有文本。请至少给出一段。"),
    "decoder_needs_pairs": (
        "For the decoder each text is a pair: (what is read, what is written).",
        "对解码器来说，每项是一对文本：（读入的，写出的）。",
    ),
    "corpus_text": (
        "Each text of the corpus is a string with at least one word, not {value}.",
        "语料中的每段文本应是至少含一个词的字符串，而不是 {value}。",
    ),
    "too_many_clusters": (
        "{clusters} clusters of {neurons} neurons: ask for fewer clusters, or for more neurons.",
        "{neurons} 个神经元分不成 {clusters} 簇：请减少簇数，或增加神经元。",
    ),
    "too_many_factors": (
        "{factors} factors of {tokens} tokens and {neurons} neurons: ask for fewer, or for more text.",
        "{tokens} 个词元、{neurons} 个神经元分不出 {factors} 个因子：请减少因子，或给更长的文本。",
    ),
    "nothing_fires": (
        "No neuron of these layers fires above zero at this text: there is nothing to take apart.",
        "这些层没有神经元在这段文本上的激活值大于零：没有可分解的内容。",
    ),
    "not_finite": (
        "The activations are not all numbers: the model computes NaN or infinity. Its weights are damaged, or overflow "
        "in this dtype.",
        "激活值不都是数：模型算出了 NaN 或无穷大。它的权重已损坏，或在此 dtype 下溢出。",
    ),
    "too_little_to_compare": (
        "There is too little to compare: {count} of at least {least} tokens, better hundreds. Give more text.",
        "可比较的太少：只有 {count} 个词元，至少要 {least} 个，最好上百。请给更多文本。",
    ),
    "no_token_left": (
        "No token is left to compare. Give longer texts, or a smaller skip.",
        "没有剩下可比较的词元。请给更长的文本，或少略去一些。",
    ),
    "cka_or_cca": ("The measure is 'cka' or 'cca', not {measure}.", "度量是 'cka' 或 'cca'，不是 {measure}。"),
    "unbiased_is_cka": (
        "The unbiased estimate is one of CKA. For CCA, hold the values against chance.",
        "无偏估计只用于 CKA。对 CCA，请与随机水平相比。",
    ),
    "variance_range": (
        "variance is {value}; it is a share above 0 and up to 1.",
        "variance 是 {value}；应是大于 0、不超过 1 的比例。",
    ),
    "only_a_table": (
        "{title} is a table of word vectors: it has no layers, and no word in it knows of another. Ask it for "
        "neighbours, or for a word-map.",
        "{title} 是一张词向量表：它没有层，里面的词互不相知。可以问它近邻词（neighbours）或词的地图（word-map）。",
    ),
    # ---- predictions, positions, parameters
    "only_multiple_choice": (
        "This model is loaded for {task}; only multiple choice takes choices.",
        "此模型按 {task} 加载；只有多项选择才需要选项。",
    ),
    "two_choices": (
        "This model chooses between continuations: give two choices or more.",
        "此模型在续写之间选择：请给出两个或更多选项。",
    ),
    "follows_takes_two": (
        "Whether one sentence follows another takes two: give a second text.",
        "判断一句是否接着另一句需要两句：请给出第二段文本。",
    ),
    "span_takes_two": (
        "An answer is looked for in a text: give the question, then that text as the second.",
        "答案要在一段文本中找：请先给出问题，再把那段文本作为第二段。",
    ),
    "no_position_scheme": (
        "This model has no position scheme: the order of its tokens is not told.",
        "此模型没有位置方案：它不知道词元的顺序。",
    ),
    "no_published_size": (
        "There is no published size {name}.{near} `clearhead models` lists them; a loaded model can be asked too.",
        "没有名为 {name} 的已公开规模。{near}`clearhead models` 会列出它们；也可以查看已加载的模型。",
    ),
    # ---- pictures
    "reads_side_by_side": (
        "{title} has towers that read side by side ({towers}), and this is about one. Of CLIP's pictures it can be "
        "asked with labels: clip.with_labels([…]), or --labels.",
        "{title} 有并排阅读的塔（{towers}），而这个问题只针对其中一个。对 CLIP 的图片，可以带标签来问："
        "clip.with_labels([…])，或 --labels。",
    ),
    "give_it_labels": (
        "{title} compares texts with pictures: say which texts it chooses among, clip.with_labels([…]) or --labels "
        "cat,dog.",
        "{title} 比较文本与图片：请说明在哪些文本中选择，clip.with_labels([…]) 或 --labels cat,dog。",
    ),
    "compares_no_pictures": (
        "{title} does not compare texts with pictures. A CLIP does.",
        "{title} 不比较文本与图片。CLIP 才会。",
    ),
    "places_on_a_grid": (
        "{family} reads the patches of a grid, and this is about places in a row.",
        "{family} 读的是网格中的图块，而这个问题是关于一行中的位置。",
    ),
}
