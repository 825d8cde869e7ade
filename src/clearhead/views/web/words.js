// Every word a figure says, in English and 中文, side by side so that neither is forgotten.

export const WORDS = {
  menu: ["Copy or save this figure", "复制或保存此图"],
  copy_svg: ["Copy as SVG", "复制为 SVG"],
  copy_svg_done: ["Copied", "已复制"],
  save_svg: ["Save SVG", "保存 SVG"],
  save_svg_done: ["Saved", "已保存"],
  save_png: ["Save PNG", "保存 PNG"],
  save_png_done: ["Saved", "已保存"],
  copy_json: ["Copy data as JSON", "复制数据（JSON）"],
  copy_json_done: ["Copied", "已复制"],
  save_json: ["Save data as JSON", "保存数据（JSON）"],
  save_json_done: ["Saved", "已保存"],
  save_csv: ["Save data as CSV", "保存数据（CSV）"],
  save_csv_done: ["Saved", "已保存"],
  save_page: ["Save as a page", "保存为网页"],
  save_page_done: ["Saved", "已保存"],
  open_lab: ["Open in the lab", "在实验室中打开"],
  open_lab_done: ["Opened", "已打开"],
  open_alone: ["Open on its own", "单独打开"],
  open_alone_done: ["Opened", "已打开"],
  language: ["Language", "语言"],
  theme: ["Light or dark", "浅色或深色"],
  view: ["View", "视图"],
  layer: ["layer", "层"],
  layer_n: ["layer {n}", "第 {n} 层"],
  head: ["head", "头"],
  heads: ["Heads", "注意力头"],
  head_n: ["head {n}", "头 {n}"],
  layer_head: ["layer {layer}, head {head}", "第 {layer} 层，头 {head}"],
  embedding: ["embedding", "嵌入"],
  position: ["position", "位置"],
  query: ["query", "查询"],
  key: ["key", "键"],
  keys: ["keys", "键"],
  score: ["score", "得分"],
  weight: ["weight", "权重"],
  products: ["query × key", "查询 × 键"],
  hidden: ["hidden", "被遮住"],
  output: ["output", "输出"],
  input: ["input", "输入"],
  effect: ["effect", "效果"],
  probability: ["probability {p}", "概率 {p}"],
  rank: ["rank", "名次"],
  rank_n: ["rank {n}", "第 {n} 名"],
  or: [" or ", "还是"],
  view_text: ["text", "文本"],
  view_matrix: ["matrix", "矩阵"],
  sort: ["sorted by", "排序"],
  two_sided: ["negative to positive", "由负到正"],
  token_id: ["token {id}", "词元 {id}"],
  dimension: ["dimension {d}", "第 {d} 维"],

  attention_lines: ["Who looks at whom?", "谁在看谁？"],
  attention_cross: ["Which words does each written word read from?", "每个写出的词在读哪些词？"],
  attention_of: ["Where does “{token}” look?", "“{token}”在看哪里？"],
  attention_to: ["Who looks at “{token}”?", "谁在看“{token}”？"],
  attention_writing: ["Where does the model look to write “{token}”?", "写“{token}”时，模型在看哪里？"],
  attention_written_from: ["What is written while it looks at “{token}”?", "看着“{token}”时，模型在写什么？"],
  attention_reading_rows: [
    "Each row is a step of writing: the token that is written, and in grey the one just read.",
    "每一行是写出的一步：写出的词元，旁边灰色的是刚读过的词元。",
  ],
  attention_reading_guess: [
    "The text ends before the last row: it is what the model itself would write next.",
    "文本到最后一行之前结束：最后一行是模型自己接下来会写的词元。",
  ],
  row_read: ["after", "刚读过"],
  row_after: ["after {read}", "在 {read} 之后"],
  row_guessed: ["what the model would write after {read}", "模型在 {read} 之后会写的"],
  row_writes: ["Having read “{read}”, the model writes “{token}”.", "读过“{read}”之后，模型写出“{token}”。"],
  row_would_write: [
    "The text ends with “{read}”; the model itself would write “{token}” next.",
    "文本在“{read}”处结束；模型自己接下来会写“{token}”。",
  ],
  attention_of_states: ["attention over the encoder’s states", "对编码器状态的注意力"],
  attention_all: ["What does every head look at?", "每个头都在看什么？"],
  attention_view_lines: ["lines", "连线"],
  attention_view_matrix: ["matrix", "矩阵"],
  attention_view_all: ["all heads", "所有头"],
  attention_reading_lines: [
    "Each line joins a token (left) to one it reads from (right); stronger is more attention, and the weights " +
      "of a token sum to 1. Hover a token to see its numbers, click to pin it. Shift-click a head to see " +
      "several at once. Keys: ↑ ↓ tokens, ← → heads, Page Up and Down layers.",
    "每条线从一个词元（左）连到它所读取的词元（右）；颜色越浓，注意力越强，每个词元的权重之和为 1。" +
      "悬停可看数值，点击可固定。按住 Shift 点击可同时查看多个头。键盘：↑ ↓ 换词元，← → 换头，Page Up / Down " +
      "换层。",
  ],
  attention_reading_matrix: [
    "A row for each token that looks, a column for each it can look at; stronger is more attention, and every " +
      "row sums to 1. Numbers are percentages. Hover a cell for its weight, click to pin it.",
    "每行是一个在看的词元，每列是一个可被看的词元；颜色越浓，注意力越强，每行之和为 1。格中数字为百分比。" +
      "悬停可看权重，点击可固定。",
  ],
  attention_reading_all: [
    "Every small square is one head’s matrix: rows look, columns are looked at. Layers run from bottom to " +
      "top. Click a square to enlarge it, double-click to see its lines.",
    "每个小方块是一个头的矩阵：行在看，列被看。层自下而上排列。点击放大，双击查看连线。",
  ],
  attention_scale: ["attention weight", "注意力权重"],
  looks: ["looks", "在看"],
  looked_at: ["is looked at", "被看"],
  decoder_reads: ["the decoder reads", "解码器读到"],
  decoder_writes: ["writes", "写出"],
  encoder_reads: ["was read", "已读"],
  see_lines: ["See its lines →", "查看连线 →"],
  all_axes: ["heads from left to right, layers from bottom to top", "从左到右是头，从下到上是层"],
  head_layer: ["layer and head", "层与头"],
  head_entropy: ["entropy, bits", "熵（比特）"],
  head_distance: ["distance", "距离"],
  head_to_previous: ["to the previous token", "看前一个词元"],
  head_to_separator: ["to special tokens, or the first", "看特殊词元或首个词元"],
  head_to_same: ["to the same token", "看相同词元"],
  head_induction: ["induction", "归纳"],
  head_alignment: ["alignment of the two texts", "两段文本的对齐程度"],

  query_key_title: ["How does “{token}” choose where to look?", "“{token}”怎样决定看哪里？"],
  query_key_reading: [
    "Layer {layer}, head {head}. The query is multiplied with each key, number by number; the sum, scaled, is " +
      "the score, and softmax turns scores into weights that sum to 1. Hover a cell for its numbers.",
    "第 {layer} 层，头 {head}。查询与每个键逐项相乘；求和并缩放得到得分，softmax 把得分变成总和为 1 的权重。" +
      "悬停可看数值。",
  ],

  saliency_title: ["Which words did “{token}” come from?", "“{token}”来自哪些词？"],
  saliency_patches: ["Which patches speak for “{token}”?", "哪些图块支持“{token}”？"],
  saliency_against: ["Why “{token}” rather than “{other}”?", "为什么是“{token}”而不是“{other}”？"],
  saliency_reading: [
    "{method}, normalised to 100 %. Warmer words mattered more. Hover or choose another output to see what it " +
      "came from.",
    "{method}，归一化为 100 %。颜色越暖，作用越大。悬停或选择另一个输出，看它来自哪里。",
  ],
  saliency_reading_matrix: [
    "{method}. A row for each output, a column for each word that could matter; every row sums to 100 %.",
    "{method}。每行一个输出，每列一个可能起作用的词；每行之和为 100 %。",
  ],
  saliency_outputs: ["Outputs: choose one", "输出：选择一个"],
  saliency_output: ["Output", "输出"],
  saliency_scale: ["share of what mattered", "作用占比"],
  could_not_matter: ["Came later: it could not matter", "出现在后面，不可能起作用"],
  was_read: ["read", "读入"],
  was_written: ["written", "写出"],
  rather_than: ["rather than", "而不是"],
  adds: ["adds {n} to its score", "使得分增加 {n}"],
  takes: ["takes {n} from its score", "使得分减少 {n}"],
  method_gradient_x_input: ["Gradient × input", "梯度 × 输入"],
  method_gradient: ["Gradient norm", "梯度范数"],
  method_gradient_norm: ["Gradient norm", "梯度范数"],
  method_integrated: ["Integrated gradients", "积分梯度"],
  method_integrated_gradients: ["Integrated gradients", "积分梯度"],
  method_occlusion: ["Occlusion: each word left out in turn", "遮挡：逐个去掉每个词"],

  hidden_title: ["When did the model make up its mind?", "模型在哪一层拿定主意？"],
  hidden_title_of: ["When did the model settle on “{token}”?", "模型在哪一层选定“{token}”？"],
  hidden_reading: [
    "The best guess after each layer, bottom to top, and beside it the rank of the token named above the " +
      "column. The strongest colour is rank 1: the answer is already first there. Hover a cell for the other " +
      "guesses.",
    "自下而上是每一层之后的最佳猜测，旁边是该列上方词元的名次。颜色最浓为第 1 名：答案在那里已排第一。" +
      "悬停可看其他猜测。",
  ],
  chosen_token: ["the token that is followed", "所追踪的词元"],
  after: ["after", "在其后："],
  at_token: ["at", "位于"],
  best_here: ["Best here:", "此处最佳："],
  comparison_title: ["Which one does it lean to: {list}?", "它更倾向于哪一个：{list}？"],
  comparison_reading: [
    "The rank of each candidate after each layer, bottom to top. The strongest colour is rank 1; ▸ marks the " +
      "one that is ahead.",
    "自下而上是每一层之后各候选词的名次。颜色最浓为第 1 名；▸ 标出领先者。",
  ],

  neurons_title: ["What do these neurons answer to?", "这些神经元对什么有反应？"],
  neurons_title_of: ["What does neuron {neuron} answer to?", "神经元 {neuron} 对什么有反应？"],
  neurons_reading: [
    "A row for each neuron (layer·number), a column for each token. Hover a row to see it on the text, click " +
      "to pin it.",
    "每行一个神经元（层·编号），每列一个词元。悬停某行可在文本上查看，点击可固定。",
  ],
  neurons_reading_clusters: [
    "A row for each neuron (layer·number), a column for each token; neurons that fire alike stand together, " +
      "and [n] begins a cluster. Hover a row to see it on the text, click to pin it.",
    "每行一个神经元（层·编号），每列一个词元；反应相似的神经元排在一起，[n] 表示一个簇的开始。" +
      "悬停某行可在文本上查看，点击可固定。",
  ],
  neuron: ["neuron", "神经元"],
  neuron_axis: ["layer·neuron", "层·神经元"],
  cluster: ["cluster", "簇"],
  activation: ["activation", "激活值"],
  top_title: ["What excites neuron {neuron} most?", "什么最能激活神经元 {neuron}？"],
  top_reading: [
    "The places of {texts} texts ({tokens} tokens) where the neuron was strongest, with the words around them. " +
      "The framed token is where it peaked. It fires at {rate} of all tokens.",
    "在 {texts} 篇文本（{tokens} 个词元）中该神经元最强的位置及其上下文。加框的词元是峰值所在。它在 {rate} " +
      "的词元上激活。",
  ],
  gates_title: ["What does the layer keep, word by word?", "这一层逐词保留了什么？"],
  gates_title_part: ["{part}, word by word", "{part}（逐词）"],
  gates_reading: [
    "Layer {layer} of {layers}, counted from 0. Time runs from left to right; a row for each unit, {count} of " +
      "{width}, those that change most. A gate is ink: empty is shut, full is open. Candidate, cell and state have a " +
      "sign. The first row is the mean over the whole layer (of what has a sign, of its size). Hover a row to see it " +
      "on the words.",
    "第 {layer} 层，共 {layers} 层，从 0 数起。时间从左到右；每行一个单元，取 {width} 个中变化最大的 {count} 个。" +
      "门用墨色表示：空白是关，满墨是开。候选、细胞状态和隐藏状态有正负。第一行是整层的平均（有正负的取大小）。" +
      "悬停某行可在词上查看。",
  ],
  gates_reverse: ["This direction reads from the end to the beginning.", "这个方向从后往前读。"],
  gates_part: ["what is shown", "显示内容"],
  gates_all: ["all", "全部"],
  gates_input_gate: ["input gate", "输入门"],
  gates_forget_gate: ["forget gate", "遗忘门"],
  gates_reset_gate: ["reset gate", "重置门"],
  gates_update_gate: ["update gate", "更新门"],
  gates_candidate: ["candidate", "候选"],
  gates_output_gate: ["output gate", "输出门"],
  gates_cell: ["cell", "细胞状态"],
  gates_hidden: ["hidden state", "隐藏状态"],
  gates_mean: ["mean", "平均"],
  gates_unit: ["unit", "单元"],
  gates_scale: ["gate: shut to open", "门：关到开"],
  gates_signed: ["candidate, cell, state; full colour is the number beside the name", "候选、状态；满色即名称旁的数"],
  echo_title: ["How long does a word stay in the state?", "一个词在状态里留多久？"],
  echo_title_of: ["What is left of “{token}”, step by step?", "“{token}”一步步还剩多少？"],
  echo_reading: [
    "Layer {layer}. Each word (row) was taken away in turn; the ink is how far that moves the state after each step " +
      "(column), as a share of the move where the word is read. The column at the end is what is left of every word " +
      "in one vector. Hover for the numbers.",
    "第 {layer} 层。逐个去掉每个词（行）；墨色表示此后每一步（列）的状态因此移动多远，以读到该词那一步的移动为 1。" +
      "末尾一列是各个词在那一个向量里还剩下的部分。悬停可看数值。",
  ],
  echo_scale: ["what is left of a word", "一个词还剩多少"],
  echo_word: ["word", "词"],
  echo_step: ["after reading", "读到"],
  echo_more: ["1 and more", "1 及以上"],
  probe_title: ["Which neuron follows {property}?", "哪个神经元跟随{property}？"],
  "probe_inside-quotes": ["being inside quotation marks", "“是否在引号内”"],
  "probe_inside-brackets": ["being inside brackets", "“是否在括号内”"],
  probe_position: ["how many tokens have been read", "“已读多少词元”"],
  "probe_sentence-position": ["how many tokens ago a sentence ended", "“上一句结束后读了多少词元”"],
  probe_reading: [
    "{total} neurons were tried. Other texts chose these; the bars are their correlation (r) on {texts} texts " +
      "({tokens} tokens) that had no part in it. Below: one such text. A line under a word shows where the property " +
      "holds; the colour is the chosen neuron’s activation.",
    "共试了 {total} 个神经元。它们由另一些文本挑出；条形是在未参与挑选的 {texts} 篇文本（{tokens} 个词元）上的相关系数 r。" +
      "下面是其中一篇：词下的线表示该性质成立，颜色是所选神经元的激活值。",
  ],
  probe_reading_count: [
    "{total} neurons were tried. Other texts chose these; the bars are their correlation (r) on {texts} texts " +
      "({tokens} tokens) that had no part in it. Below: one such text, coloured by the chosen neuron’s activation; " +
      "the curve is the activation along the text, the dashed one the count.",
    "共试了 {total} 个神经元。它们由另一些文本挑出；条形是在未参与挑选的 {texts} 篇文本（{tokens} 个词元）上的相关系数 r。" +
      "下面是其中一篇，颜色是所选神经元的激活值；曲线是激活值沿文本的变化，虚线是计数。",
  ],
  probe_tip: ["r = {r}; on the texts that chose it {found}", "r = {r}；在挑选它的文本上为 {found}"],
  probe_right: ["a threshold is right at {share} (guessing: 50 %)", "用阈值判断的正确率 {share}（瞎猜：50 %）"],
  factors_title: ["What fires together?", "哪些在一起激活？"],
  factors_title_of: ["Where is factor {n} active?", "因子 {n} 在哪里活跃？"],
  factor: ["factor", "因子"],
  factor_scale: ["strength of the factor", "因子强度"],
  its_most: ["its most", "最大值"],
  factors_reading: [
    "{count} patterns that together rebuild the activations, with an error of {error}. Each sparkline runs " +
      "over the tokens. Hover one to light up its tokens, click to pin it.",
    "{count} 个模式共同重建激活值，误差为 {error}。每条迷你图沿词元展开。悬停可点亮词元，点击可固定。",
  ],

  text_pictures_title: ["Which text fits which picture?", "哪段文本配哪张图片？"],
  text_pictures_reading: [
    "Each cell: how probable the text is for the picture, in per cent. A column sums to 100.",
    "每一格：这段文本配这张图片的概率（百分比）。每列之和为 100。",
  ],
  text_pictures_scale: ["probability of the text", "文本的概率"],
  similarity_title: ["Where do {a} and {b} see alike?", "{a} 与 {b} 在哪里看法相似？"],
  similarity_title_one: ["Which layers see alike?", "哪些层看法相似？"],
  similarity_reading: [
    "{measure} between the layers of {a} (rows, bottom to top) and {b} (columns) on the same texts: 1 is the " +
      "same up to {alike}, 0 has nothing in common. {count} tokens were compared; in random order they would " +
      "give {baseline}.",
    "在相同文本上 {a} 的各层（行，自下而上）与 {b} 的各层（列）之间的 {measure}：1 表示只差{alike}，0 " +
      "表示毫无共同之处。共比较 {count} 个词元；若打乱顺序，结果为 {baseline}。",
  ],
  similarity_reading_one: [
    "{measure} between the layers of {a}, from bottom to top and from left to right, on the same texts: 1 is " +
      "the same up to {alike}, 0 has nothing in common. {count} tokens were compared; in random order they " +
      "would give {baseline}.",
    "{a} 各层之间（自下而上、从左到右）在相同文本上的 {measure}：1 表示只差{alike}，0 表示毫无共同之处。" +
      "共比较 {count} 个词元；若打乱顺序，结果为 {baseline}。",
  ],
  similarity_cka: ["a rotation", "一个旋转"],
  similarity_cca: ["a linear map of the directions kept", "所保留方向上的一个线性映射"],
  similarity_unbiased: ["Unbiased {measure}", "无偏 {measure}"],
  similarity_averaged: [
    "Where one model reads a stretch of text as several tokens, they are averaged.",
    "若某个模型把一段文字读成多个词元，则取其平均。",
  ],
  patching_title: ["Where is “{answer}” decided?", "“{answer}”是在哪里决定的？"],
  patching_clean: ["clean text", "原文本"],
  patching_corrupted: ["changed text", "改动后的文本"],
  patching_reading: [
    "{tap} of the clean text was put into the changed text, one layer and {by} at a time. 1 brings the {metric} " +
      "all the way back to {clean}, 0 leaves it at {corrupted}. Hover for the number, click to pin.",
    "把原文本的 {tap} 放进改动后的文本，每次一层、一个{by}。1 表示{metric}完全恢复到 {clean}，0 表示仍为 " +
      "{corrupted}。悬停可看数值，点击可固定。",
  ],
  patching_score: ["score of “{answer}”", "“{answer}”的得分"],
  patching_above: ["score of “{answer}” above “{other}”", "“{answer}”高出“{other}”的得分"],
  ablation_title: ["Which heads matter here?", "哪些头在这里起作用？"],
  ablation_before: ["with all heads", "所有头都在"],
  ablation_after_of: ["without layer {layer}, head {head}", "去掉第 {layer} 层的头 {head}"],
  ablation_reading: [
    "Each cell: one head is silenced, and the answer changes by so much ({metric}). Layers run from bottom to " +
      "top. Hover for the number, click to pin.",
    "每格表示静音一个头后答案的变化（{metric}）。层自下而上排列。悬停可看数值，点击可固定。",
  ],
  ablation_reading_signed: [
    "Each cell: one head is silenced, and the answer moves by so much ({metric}), up or down. Layers run from " +
      "bottom to top. Hover for the number, click to pin.",
    "每格表示静音一个头后答案的升降（{metric}）。层自下而上排列。悬停可看数值，点击可固定。",
  ],

  steps_step: ["step", "步骤"],
  steps_who_writes: ["The token that is being written: choose any", "正在写的词元：可任选一个"],
  steps_who: ["The token that asks: choose any", "提问的词元：可任选一个"],
  steps_everyone: ["The same for every token", "每个词元都是如此"],
  steps_name_1: ["1 vectors", "1 向量"],
  steps_name_2: ["2 products", "2 乘积"],
  steps_name_3: ["3 scaling", "3 缩放"],
  steps_name_4: ["4 softmax", "4 softmax"],
  steps_name_5: ["5 weighted sum", "5 加权求和"],
  steps_name_6: ["6 all heads", "6 所有的头"],
  steps_title_cross: [
    "What does the decoder ask for, and what does the source offer?",
    "解码器在问什么？原文能给什么？",
  ],
  steps_title_1: ["What are the query, key and value of “{token}”?", "“{token}”的查询、键、值是什么？"],
  steps_title_2: ["How well does the query of “{token}” match each key?", "“{token}”的查询与每个键有多匹配？"],
  steps_title_3: ["What does scaling change?", "缩放改变了什么？"],
  steps_title_4: ["How much of each token does “{token}” take?", "“{token}”从每个词元取多少？"],
  steps_title_5: ["What does “{token}” get back?", "“{token}”得到了什么？"],
  steps_title_6: ["What do the heads say together?", "所有的头合起来说了什么？"],
  steps_reading_1: [
    "Layer {layer}, head {head}. A cell is a number, its colour how large it is; each row of colours is one " +
      "vector. Hover for the numbers, choose another token or head.",
    "第 {layer} 层，头 {head}。每格一个数，颜色表示大小；一行颜色就是一个向量。悬停可看数值，也可换一个词元或头。",
  ],
  steps_reading_2: [
    "Layer {layer}, head {head}. Query times key, number by number, {size} times; their sum is at the right, " +
      "the largest in bold. Hover a cell for its product.",
    "第 {layer} 层，头 {head}。查询与键逐项相乘，共 {size} 项；右边是它们的和，最大者加粗。悬停格子可看乘积。",
  ],
  steps_reading_3: [
    "The outline is the sum of the products, the bar what is left after × {scale}: the score. Keys that may " +
      "not be seen are marked as hidden.",
    "空心框是乘积之和，实心条是乘以 {scale} 之后剩下的：得分。不允许看的键标为“被遮住”。",
  ],
  steps_reading_4: [
    "The violet bars sum to 100 %. The outline shows what the weights would be without step 3.",
    "紫色条形之和为 100 %。空心框是若没有第三步权重会是多少。",
  ],
  steps_reading_5: [
    "Each value is multiplied by its weight: pale rows hardly count. The last row is the sum of those above it.",
    "每个值乘以它的权重：颜色浅的行几乎不起作用。最后一行是上面各行之和。",
  ],
  steps_reading_6: [
    "Each of the {heads} heads has looked in its own way, for the same token. Their answers stand side by " +
      "side; one more matrix mixes them into {width} numbers, which are added to the token’s vector.",
    "{heads} 个头为同一个词元各看各的。它们的答案并排放置，再由一个矩阵混合成 {width} 个数，加回词元的向量。",
  ],
  steps_input: ["“{token}” as it enters the layer, {width} numbers", "进入这一层的“{token}”，{width} 个数"],
  steps_of_query: ["its query, {size} numbers", "它的查询，{size} 个数"],
  steps_of_key: ["its key, {size} numbers", "它的键，{size} 个数"],
  steps_of_value: ["its value, {size} numbers", "它的值，{size} 个数"],
  value: ["value", "值"],
  steps_queries: ["queries", "查询"],
  steps_values: ["values", "值"],
  steps_sum: ["sum", "和"],
  steps_added: ["added", "附加"],
  steps_before_after: ["before and after × {scale}", "乘以 {scale} 前后"],
  steps_exp: ["e^(score − best)", "e^(得分 − 最大)"],
  steps_together: ["together", "合计"],
  steps_unscaled: ["without scaling", "不缩放时"],
  steps_weighted: ["weight × value", "权重 × 值"],
  steps_answer: ["answer of head {head}", "头 {head} 的答案"],
  steps_answers: ["answer", "答案"],
  steps_weights: ["weights over the tokens", "在各词元上的权重"],
  steps_looks: ["looks most at", "最看重"],
  steps_side_by_side: [
    "the answers side by side: {heads} × {size} = {width} numbers",
    "答案并排：{heads} × {size} = {width} 个数",
  ],
  steps_output: [
    "after one more matrix: what attention adds to “{token}”, {width} numbers",
    "再乘一个矩阵：注意力加给“{token}”的 {width} 个数",
  ],

  align_step: ["step", "步骤"],
  align_name_1: ["1 score", "1 打分"],
  align_name_2: ["2 softmax", "2 softmax"],
  align_name_3: ["3 context", "3 上下文"],
  align_name_4: ["4 word", "4 词"],
  align_who: ["The word that is being written: choose any", "正在写的词：可任选一个"],
  align_title_1: ["Which encoder state fits what comes next?", "编码器的哪个状态与接下来要写的相配？"],
  align_title_2: ["How much of each word goes into “{token}”?", "写“{token}”时，每个词占多少？"],
  align_title_3: ["What does the decoder take home for “{token}”?", "为了写“{token}”，解码器取回了什么？"],
  align_title_4: ["How does it become “{token}”?", "怎样变成“{token}”？"],
  align_reading_1: [
    "{who} is held against the encoder’s state after each word: {how}. One number for each, the largest in bold. A " +
      "row of colours is a vector; hover for its numbers.",
    "{who}与编码器在每个词之后的状态逐一比较：{how}。每个状态得一个数，最大者加粗。一行颜色是一个向量，悬停可看数值。",
  ],
  align_before: ["The decoder’s state before the step", "解码器在这一步之前的状态"],
  align_after: ["The decoder’s state after the step", "解码器在这一步之后的状态"],
  align_additive: [
    "both go through a matrix, are added, bent by tanh and summed up",
    "各乘一个矩阵，相加，经过 tanh，再加权求和",
  ],
  align_concat: [
    "both go through a matrix, are added, bent by tanh and summed up",
    "各乘一个矩阵，相加，经过 tanh，再加权求和",
  ],
  align_dot: ["number times number, added up", "逐项相乘再求和"],
  align_general: ["number times number, with a matrix in between, added up", "中间乘一个矩阵，逐项相乘再求和"],
  align_reading_2: [
    "e to the power of each score, divided by their sum: shares that add up to {sum}.",
    "以 e 为底、得分为指数，再除以总和：各份额合计 {sum}。",
  ],
  align_reading_3: [
    "Each encoder state times its weight: pale rows hardly count. The last row is their sum, the context: one vector " +
      "again, but made for this word alone.",
    "编码器的每个状态乘以它的权重：颜色浅的行几乎不起作用。最后一行是它们的和，即上下文：又是一个向量，但只为这个词而做。",
  ],
  align_reading_4: [
    "Context and state side by side go through one more matrix and tanh; what comes out is compared with every word " +
      "of the vocabulary. The likeliest words of this step, with their probabilities.",
    "上下文与状态并排，再乘一个矩阵并经过 tanh；结果与词表中的每个词比较。下面是这一步最可能的词及其概率。",
  ],
  align_state: ["the state that looks, {width} numbers", "在看的状态，{width} 个数"],
  align_states: ["encoder states", "编码器的状态"],
  align_weighted: ["weight × state", "权重 × 状态"],
  align_context: ["context", "上下文"],
  align_context_of: ["context, {width} numbers", "上下文，{width} 个数"],
  align_output: ["the decoder’s state, {width} numbers", "解码器的状态，{width} 个数"],
  align_readout: ["after a matrix and tanh, {width} numbers", "乘矩阵并经过 tanh 之后，{width} 个数"],
  length_title: ["What happens as the sentence grows?", "句子变长时会怎样？"],
  length_axis: ["words in the source", "原文词数"],
  length_all: ["over all {bleu}", "总体 {bleu}"],
  length_bin: ["{range} words, {sentences} sentences", "{range} 个词，{sentences} 句"],
  length_reading: [
    "BLEU (higher is better) of sentences of about one length; all models translated the same ones: {data}; " +
      "{decoding}; {metric}. Measured once, not now; the numbers lie beside the models. Hover a length for them, " +
      "click to keep them.",
    "长度相近的句子的 BLEU（越高越好）；各模型翻译的是同样的句子：{data}；{decoding}；{metric}。" +
      "数值是事先测得的，与模型放在一起。悬停可看数值，点击可固定。",
  ],
  cosine: ["cosine", "余弦"],
  word_row: ["word {row} of the table", "表中第 {row} 个词"],
  neighbours_title: ["Which words lie near “{word}”?", "哪些词离“{word}”近？"],
  neighbours_title_sum: ["Where does {asked} lead?", "{asked} 通向哪里？"],
  neighbours_reading: [
    "The cosine of each word’s vector with the one asked about, the nearest of {count} words first; a vector " +
      "has {width} numbers. 1 is the same direction, 0 nothing in common.",
    "每个词的向量与所问之词的余弦，{count} 个词中最近的排在前面；每个向量有 {width} 个数。1 表示方向相同，0 表示毫无共同之处。",
  ],
  neighbours_reading_sum: [
    "The words’ vectors, each of length one and with its sign, are averaged; listed are the words nearest to " +
      "where that leads, by cosine, of {count} ({width} numbers each). The words of the sum are left out. The " +
      "plane is that of the sum; the ring is where it leads.",
    "各词的向量化为单位长度、带上符号后取平均；列出的是离结果最近的词，按余弦，共 {count} 个词（每个 {width} 个数）。算式里的词不算在内。平面是算式所在的平面，圆圈是它通向的地方。",
  ],
  neighbours_plane: ["Where the words of the sum lie, and where it leads", "算式中的词在哪里，它通向哪里"],
  neighbours_leads: ["{asked} leads here", "{asked} 通向这里"],
  word: ["word", "词"],
  angle: ["angle", "夹角"],
  length: ["length", "长度"],
  distance: ["distance", "距离"],
  word_map_title_learned: ["Where do these words lie?", "这些词都在哪里？"],
  word_map_title_numbers: ["What does a word look like as numbers?", "一个词写成数是什么样？"],
  word_map_title_angles: ["How alike are they: what is the angle?", "它们有多相似：夹角是多少？"],
  word_map_title_odd: ["Which word does not belong?", "哪个词不是一类的？"],
  "word_map_title_one-hot": ["What is a word before anything is learned?", "学习之前，一个词是什么？"],
  word_map_vectors: ["Vectors", "向量"],
  word_map_learned: ["map", "地图"],
  word_map_numbers: ["numbers", "数值"],
  word_map_angles: ["angles", "夹角"],
  word_map_odd: ["odd one out", "不同类的词"],
  "word_map_one-hot": ["one-hot", "独热（one-hot）"],
  word_map_cosines: ["How alike each two are", "每两个词有多相似"],
  word_map_value: ["value", "数值"],
  word_map_number_n: ["number {n}", "第 {n} 个数"],
  word_map_reading_learned: [
    "Vectors of {width} numbers on the plane that keeps most of their differences (PCA): {kept} of them; the " +
      "rest does not show. Near on the map is a hint, the cosines are the fact.",
    "{width} 个数的向量，画在最能保留其差别的平面上（PCA）：保留了 {kept}，其余看不见。图上的远近只是提示，余弦才是事实。",
  ],
  word_map_least: ["Least like the mean of all: {word}.", "与整体平均最不像的：{word}。"],
  word_map_reading_odd: [
    "Each word’s cosine with the mean of all of them. Least like it is “{odd}”: the odd one out.",
    "每个词与全体平均的余弦。最不像的是“{odd}”：它与其余的词不同类。",
  ],
  word_map_reading_no_odd: [
    "Each word’s cosine with the mean of all of them. Of two, none is the odd one out: give three or more.",
    "每个词与全体平均的余弦。只有两个词时谈不上哪个不同类：请给出三个或更多。",
  ],
  word_map_reading_numbers: [
    "A row for each word, {width} numbers, as they were learned; the table has {count} such rows. No single number " +
      "has a name. Words that are used alike have rows that look alike.",
    "每个词一行，{width} 个数，都是学出来的；表里共有 {count} 行。单独一个数没有名字。用法相近的词，行也相像。",
  ],
  word_map_reading_angles: [
    "Each arrow has its true length and its true angle to “{base}”. Cosine looks at the angle alone; the dotted " +
      "line between two tips is Euclid’s distance, for which the lengths count too. Choose a word to hold the " +
      "others against it.",
    "每个箭头的长度和它与“{base}”的夹角都是真实的。余弦只看夹角；两个箭尖之间的虚线是欧氏距离，长度也算在内。" +
      "选择一个词，就以它为准比较其余的词。",
  ],
  "word_map_reading_one-hot": [
    "Each word is {count} numbers: zeros, and a one at its own place in the table. Any two of them are " +
      "equally far apart: a word’s number says nothing of what it means.",
    "每个词是 {count} 个数：全是零，只在它自己的位置上有一个一。任意两个词都一样远：编号并不说明词义。",
  ],
  word_map_one_at: [
    "{word}: {count} numbers, a one at place {row}, zeros elsewhere",
    "{word}：{count} 个数，第 {row} 位是一，其余都是零",
  ],

  in_context_title: ["Does every “{word}” have its own vector?", "每个“{word}”都有自己的向量吗？"],
  in_context_table: ["{table}: one row for all uses", "{table}：所有用法共用一行"],
  in_context_model: ["{model}, {layers}: a vector for each use", "{model}，{layers}：每次使用一个向量"],
  in_context_layer: ["after layer {layer}", "第 {layer} 层之后"],
  in_context_layers: ["mean of layers {layers}", "第 {layers} 层的平均"],
  in_context_embedding: ["before the first layer", "第一层之前"],
  in_context_cosines: ["How alike each two uses are", "每两次使用有多相似"],
  in_context_strips: ["The uses, each with its {width} numbers", "各次使用，及其 {width} 个数"],
  in_context_one_point: [
    "{word}: all {count} uses are row {row}, one and the same point",
    "{word}：{count} 次使用都是第 {row} 行，同一个点",
  ],
  in_context_row: [
    "In the table of {table}, every use is row {row} of {count}: one point, near the same words whatever the sentence.",
    "在 {table} 的表里，每次使用都是第 {row} 行（共 {count} 行）：一个点，无论句子是什么，旁边都是同样的词。",
  ],
  in_context_reading: [
    "The {count} uses as the model reads them, on the plane that keeps most of their differences (PCA): {kept}. Near " +
      "on the plane is a hint, the cosines are the fact. Hover a use to see which others are most like it.",
    "模型读到的 {count} 次使用，画在最能保留其差别的平面上（PCA）：保留了 {kept}。图上的远近只是提示，余弦才是事实。" +
      "悬停一次使用，可看与它最像的其他几次。",
  ],
  in_context_parted: [
    "Mean cosine {within} within a meaning, {across} across meanings; {home} of {count} uses lie nearest to one of " +
      "their own meaning.",
    "同一意思之内的平均余弦为 {within}，不同意思之间为 {across}；{count} 次使用中，有 {home} 次离得最近的是同一意思的用法。",
  ],
  in_context_across: [
    "Mean cosine {across} across meanings; {home} of {count} uses lie nearest to one of their own meaning.",
    "不同意思之间的平均余弦为 {across}；{count} 次使用中，有 {home} 次离得最近的是同一意思的用法。",
  ],
  in_context_left: [
    "This model reads from left to right: what follows the word changes nothing.",
    "这个模型从左往右读：词后面的内容不起作用。",
  ],

  next_title: ["What may come next?", "接下来可能是什么？"],
  next_reading: [
    "These {count} hold {shown} of the probability; bars are against the likeliest. Entropy {entropy} bits: as " +
      "unsure as a fair choice among {many} of the {vocabulary} tokens. Choose one to go on.",
    "这 {count} 个占全部概率的 {shown}；条形以最可能者为准。熵为 {entropy} 比特：相当于在 {vocabulary} " +
      "个词元中的 {many} 个里公平抽取。选择一个继续。",
  ],
  walk_title: ["What happens to “{token}” on its way?", "“{token}”一路经历了什么？"],
  walk_reading: [
    "Layer {layer} of {layers}, head {head} of {heads}, counted from 0. Queries violet, keys orange, values " +
      "blue; a cell’s colour is the size of its number.",
    "第 {layer} 层（共 {layers} 层），头 {head}（共 {heads} 个），从 0 计。查询为紫，键为橙，值为蓝；" +
      "格子的颜色表示数值大小。",
  ],
  walk_reading_recurrent: [
    "Layer {layer} of {layers}, counted from 0. Every number of a vector has gates of its own: read the rows of a " +
      "stop from top to bottom. A cell’s colour is the size of its number.",
    "第 {layer} 层（共 {layers} 层），从 0 计。向量的每个数都有自己的门：每一站的各行自上而下对应着读。格子的颜色表示数值大小。",
  ],
  looks_at: ["looks at", "看向"],

  side_encoder: ["encoder", "编码器"],
  side_decoder: ["decoder", "解码器"],
  side_cross: ["decoder to encoder", "解码器看编码器"],
  attention_side: ["Which attention", "哪种注意力"],
  log_prob: ["log-probability", "对数概率"],

  beams_title: ["How was the answer searched?", "答案是怎样搜索出来的？"],
  beams_title_greedy: ["What was taken, and what stood next in line?", "选了什么，又有哪些紧随其后？"],
  beams_reading: [
    "A column for each new token: the candidates from the likeliest text down. The {beams} likeliest go on; " +
      "grey ones were dropped. A text that ends competes with the others by its score: log-probability / length " +
      "to the power of {penalty}. Move the slider to see the tree grow; hover a token for its numbers.",
    "每列对应一个新词元：候选按整段文本的概率从高到低排列。概率最高的 {beams} 个继续；灰色的被放弃。" +
      "结束的文本按得分竞争：对数概率 / 长度的 {penalty} 次方。移动滑块看树如何生长；悬停词元可看数值。",
  ],
  beams_reading_greedy: [
    "A column for each new token: the likeliest one was taken, the grey ones stood next in line. Move the " +
      "slider to see it grow; hover a token for its numbers.",
    "每列对应一个新词元：取概率最高者，灰色的是紧随其后的候选。移动滑块看它如何生长；悬停词元可看数值。",
  ],
  beams_step: ["How many tokens have been written", "已写出多少个词元"],
  beams_step_of: ["token {n} of {of}", "第 {n} 个词元，共 {of} 个"],
  beams_play: ["▶ Play", "▶ 播放"],
  beams_pause: ["❚❚ Pause", "❚❚ 暂停"],
  beams_total: ["log-probability so far", "累计对数概率"],
  beams_length: ["tokens", "词元数"],
  beams_answers: ["The answers, the best first", "答案，最好的在前"],
  beams_followed: ["Followed at this step", "此步所跟踪的文本"],
  beams_ended: ["ended", "已结束"],
  beams_live: ["The search went on from here", "搜索从这里继续"],
  beams_dropped: ["Dropped: others were likelier", "放弃：其他更可能"],
  beams_finished: ["A text ends here", "一段文本在此结束"],
  beams_stopped: ["Still likely, but it could not have won any more", "仍有可能，但已无法胜出"],
  beams_key_best: ["the best text", "最佳文本"],
  beams_key_taken: ["what was taken", "所选"],
  beams_key_dropped: ["dropped", "被放弃"],
  beams_key_ended: ["a text ends", "文本结束"],

  positions_title: ["How does the model know the order?", "模型怎样知道顺序？"],
  positions_scheme: ["scheme", "方案"],
  positions_dimensions: ["dimensions", "维度"],
  positions_distance: ["distance", "距离"],
  positions_value: ["value; what stands far out gets the full colour", "数值；过大的数取最浓的颜色"],
  positions_added: ["added to the score", "加到得分上"],
  positions_alike: ["How alike are two positions?", "两个位置有多相似？"],
  positions_cosine: ["cosine", "余弦"],
  positions_sinusoidal: ["sinusoidal, computed", "正弦，计算得出"],
  positions_learned: ["learned table", "学得的表"],
  positions_rotary: ["rotary", "旋转"],
  positions_distance_bias: ["a bias by distance", "按距离的偏置"],
  positions_distance_vectors: ["a vector for each distance", "每个距离一个向量"],
  positions_reading_sinusoidal: [
    "A row for each position, a column for each dimension: waves from fast to slow, added to the token’s vector.",
    "每行一个位置，每列一个维度：由快到慢的波，加到词元的向量上。",
  ],
  positions_reading_learned: [
    "A row for each position, a column for each dimension: a table that was learned and is added to the " +
      "token’s vector.",
    "每行一个位置，每列一个维度：学习得到的表，加到词元的向量上。",
  ],
  positions_reading_rotary: [
    "A row for each position: what (1, 0) becomes in every pair of dimensions of a query or key when it is " +
      "turned by its position.",
    "每行一个位置：查询或键的每对维度中的 (1, 0) 按位置旋转后的样子。",
  ],
  positions_reading_distance_bias: [
    "A row for each distance (key minus query), a column for each head: the number that is added to the score.",
    "每行一个距离（键减查询），每列一个头：加到得分上的数。",
  ],
  positions_reading_distance_vectors: [
    "A row for each distance (key minus query), a column for each dimension: a vector that queries and keys " +
      "are compared with.",
    "每行一个距离（键减查询），每列一个维度：与查询和键相比较的向量。",
  ],
  positions_reading_alike: [
    "Beside it the cosine between any two of them: 1 is the same direction. Hover for numbers.",
    "旁边是任意两者之间的余弦：1 表示方向相同。悬停可看数值。",
  ],
  positions_reading_bias: [
    "Beside it what one head adds for every query (row) and key (column); click a column to choose another head.",
    "旁边是一个头对每对查询（行）和键（列）所加的数；点击一列可换另一个头。",
  ],

  parameters_title: ["Where do the {total} parameters live?", "{total} 个参数都在哪里？"],
  parameters_reading: [
    "Each area is as large as its share of all {total} parameters. Hover for shapes and exact numbers.",
    "每块面积与其在全部 {total} 个参数中的占比成正比。悬停可看形状与精确数字。",
  ],
  parameters_shared_reading: [
    "What several parts share is counted once, where it first stands.",
    "多处共享的参数只在首次出现处计一次。",
  ],
  parameters_shared: ["{count} more are shared and counted elsewhere", "另有 {count} 个为共享，已在别处计入"],
  parameters_tied: ["shared", "共享"],
  parameters_part: ["part", "部分"],
  parameters_each: ["each of {layers} layers", "每层（共 {layers} 层）"],
  parameters_all: ["all", "合计"],
  parameters_total: ["total", "总计"],
  parameters_token_embedding: ["token embedding", "词元嵌入"],
  parameters_positions: ["positions", "位置"],
  parameters_segments: ["segments", "句段"],
  parameters_query: ["query", "查询"],
  parameters_key: ["key", "键"],
  parameters_value: ["value", "值"],
  parameters_qkv: ["query, key, value", "查询、键、值"],
  parameters_key_value: ["key, value", "键、值"],
  parameters_output: ["output", "输出"],
  parameters_up: ["widening", "展宽"],
  parameters_gate: ["gate", "门"],
  parameters_down: ["narrowing", "收窄"],
  parameters_norm: ["norms", "归一化"],
  parameters_norm_outside: ["norms outside the layers", "层外的归一化"],
  parameters_head: ["head", "输出头"],
  parameters_in_attention: ["attention: {name}", "注意力：{name}"],
  parameters_in_cross_attention: ["cross-attention: {name}", "交叉注意力：{name}"],
  parameters_in_feed_forward: ["feed-forward: {name}", "前馈：{name}"],
  parameters_kind_embedding: ["embedding", "嵌入"],
  parameters_kind_positions: ["positions", "位置"],
  parameters_kind_attention: ["attention", "注意力"],
  parameters_kind_cross_attention: ["cross-attention", "交叉注意力"],
  parameters_kind_feed_forward: ["feed-forward", "前馈"],
  parameters_kind_recurrent: ["recurrent layers", "循环层"],
  parameters_kind_norm: ["norms", "归一化"],
  parameters_kind_head: ["head", "输出头"],
  parameters_kind_other: ["other", "其他"],

  prediction_title_label: ["What does the model say of the text?", "模型怎样判断这段文本？"],
  prediction_title_labels: ["What applies to the text?", "哪些标签适用于这段文本？"],
  prediction_title_number: ["What number does the model give?", "模型给出什么数值？"],
  prediction_title_next_sentence: ["Does the second sentence follow the first?", "第二句是否接在第一句之后？"],
  prediction_title_word: ["What is hidden here?", "这里藏着什么词？"],
  prediction_title_token_label: ["What is each token?", "每个词元是什么？"],
  prediction_title_replaced: ["Which tokens were replaced?", "哪些词元被替换过？"],
  prediction_title_span: ["Where is the answer?", "答案在哪里？"],
  prediction_reading_label: [
    "One of these labels; their probabilities sum to 100 %.",
    "这些标签中的一个；概率之和为 100 %。",
  ],
  prediction_reading_labels: [
    "Each label for itself: the probability that it applies.",
    "每个标签单独判断：适用的概率。",
  ],
  prediction_reading_number: [
    "The number as the head gives it; it is no probability.",
    "输出头直接给出的数值，不是概率。",
  ],
  prediction_reading_next_sentence: [
    "Read off the first token, [CLS], which has looked at both sentences; the two probabilities sum to 100 %.",
    "由首个词元 [CLS] 得出，它看过两个句子；两个概率之和为 100 %。",
  ],
  prediction_reading_word: [
    "The likeliest words for each gap, with their probabilities; bars are against the likeliest.",
    "每个空缺最可能的词及其概率；条形以最可能者为准。",
  ],
  prediction_reading_token_label: [
    "A label under each token; stronger is surer. Hover a token to see the others, click to pin it.",
    "每个词元下方是它的标签；颜色越浓越确定。悬停可看其他标签，点击可固定。",
  ],
  prediction_reading_replaced: [
    "How likely it is that another token stood there; warmer is likelier.",
    "该处原本是另一个词元的可能性；颜色越暖越可能。",
  ],
  prediction_reading_span: [
    "The likeliest places in the second text: probability of the beginning times probability of the end.",
    "第二段文本中最可能的位置：起点概率乘终点概率。",
  ],
  prediction_rest: ["and {count} more, {share} together", "另有 {count} 个，合计 {share}"],
  prediction_rest_each: ["and {count} more, each {share}", "另有 {count} 个，各 {share}"],
  prediction_follows: ["follows", "接得上"],
  prediction_does_not_follow: ["does not follow", "接不上"],
  prediction_replaced: ["replaced", "被替换"],
  prediction_gap: ["gap {n}", "空缺 {n}"],
  prediction_first: ["first text", "第一段"],
  prediction_second: ["second text", "第二段"],

  sampling_title: ["How is the next token drawn?", "下一个词元是怎样抽取的？"],
  sampling_reading: [
    "The {count} likeliest of {vocabulary} tokens. First the scores are divided by the temperature, then " +
      "top-k keeps the k likeliest, then top-p the likeliest that together reach a share p. Move the sliders: " +
      "everything is computed anew from the model’s scores.",
    "{vocabulary} 个词元中最可能的 {count} 个。先用温度除得分，再由 top-k 保留最可能的 k 个，最后由 top-p " +
      "保留合计达到份额 p 的词元。移动滑块：一切都由模型的得分重新计算。",
  ],
  sampling_temperature: ["temperature", "温度"],
  sampling_top_k: ["top-k", "top-k"],
  sampling_top_p: ["top-p", "top-p"],
  sampling_off: ["off", "关"],
  sampling_before: ["before", "之前"],
  sampling_after: ["after", "之后"],
  sampling_cut: ["cut", "被去掉"],
  sampling_mass: ["What happens to the probabilities", "概率的去向"],
  sampling_left: ["{count} tokens can be drawn: {share}", "可抽取 {count} 个词元：{share}"],
  sampling_by_top_p: ["cut by top-p: {share}", "被 top-p 去掉：{share}"],
  sampling_by_top_k: ["cut by top-k: {share}", "被 top-k 去掉：{share}"],
  sampling_drawn: ["Drawn by the model, seeds {first} to {last}", "模型抽取的结果，种子 {first} 至 {last}"],
  sampling_seed: ["seed {seed}", "种子 {seed}"],
  sampling_other: ["Other settings than those the model drew with.", "设置与模型抽取时不同。"],
  sampling_again: ["Draw with these →", "用这些设置抽取 →"],
  cache_title: ["What does the cache save?", "缓存省下了什么？"],
  cache_without: ["without a cache", "没有缓存"],
  cache_with: ["with a cache", "有缓存"],
  cache_without_short: ["without", "无缓存"],
  cache_with_short: ["with", "有缓存"],
  cache_writes: ["writes", "写出"],
  cache_reading: [
    "A row for each token that is written, a column for each that has been read by then. Strong: its keys and " +
      "values are computed in this step, in all {layers} layers. Pale: they were kept and are only read. Hover " +
      "a cell for its numbers, click to pin a row.",
    "每行是写出的一个词元，每列是此前读过的一个词元。颜色浓：这一步要在全部 {layers} 层计算它的键和值。" +
      "颜色淡：键和值已经存好，只需读取。悬停可看数值，点击可固定一行。",
  ],
  cache_reading_source: [
    "Keys and values of the {count} tokens of the source are computed in the first step only, too; the " +
      "numbers include them.",
    "原文 {count} 个词元的键和值同样只在第一步计算；数字中已包含它们。",
  ],
  cache_computed: ["keys and values computed", "计算键和值"],
  cache_read: ["only read", "只读取"],
  cache_work: ["Multiply-adds of each step", "每一步的乘加次数"],
  cache_tip_computed: [
    "To write {writes}, keys and values of {token} are computed",
    "为写出 {writes}，要计算 {token} 的键和值",
  ],
  cache_tip_read: [
    "To write {writes}, keys and values of {token} are only read",
    "为写出 {writes}，{token} 的键和值只需读取",
  ],
  cache_tip_unread: ["{token} comes later", "{token} 在后面"],
  cache_tip_unseen: ["{token} lies outside every layer’s window", "{token} 在所有层的窗口之外"],
  cache_total: [
    "Together {without} without a cache and {work} with it: {saved} saved. In return the cache holds {kept} " +
      "numbers at the end, {size}.",
    "合计：没有缓存 {without} 次，有缓存 {work} 次，省下 {saved}。代价是缓存最终要存 {kept} 个数，共 {size}。",
  ],
};

export const LANGUAGES = { en: "English", zh: "中文" };

export function say(lang, key, values = {}) {
  const entry = WORDS[key];
  if (!entry) return key.replace(/^[a-z]+_/, "").replaceAll("_", " ");
  return entry[lang === "zh" ? 1 : 0].replace(/\{(\w+)\}/g, (_, name) => values[name] ?? "");
}
