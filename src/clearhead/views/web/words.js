// Every word a figure says, in English and 中文, side by side so that neither is forgotten.

const WORDS = {
  menu: ["Copy or save this figure", "复制或保存此图"],
  copy_svg: ["Copy as SVG", "复制为 SVG"], copy_svg_done: ["Copied", "已复制"],
  save_svg: ["Save SVG", "保存 SVG"], save_svg_done: ["Saved", "已保存"],
  save_png: ["Save PNG", "保存 PNG"], save_png_done: ["Saved", "已保存"],
  copy_json: ["Copy data as JSON", "复制数据（JSON）"], copy_json_done: ["Copied", "已复制"],
  save_json: ["Save data as JSON", "保存数据（JSON）"], save_json_done: ["Saved", "已保存"],
  save_csv: ["Save data as CSV", "保存数据（CSV）"], save_csv_done: ["Saved", "已保存"],
  open_alone: ["Open on its own", "单独打开"], open_alone_done: ["Opened", "已打开"],
  language: ["Language", "语言"], theme: ["Light or dark", "浅色或深色"], view: ["View", "视图"],
  layer: ["layer", "层"], layer_n: ["layer {n}", "第 {n} 层"], head: ["head", "头"], heads: ["Heads", "注意力头"], head_n: ["head {n}", "头 {n}"],
  layer_head: ["layer {layer}, head {head}", "第 {layer} 层，头 {head}"], embedding: ["embedding", "嵌入"], position: ["position", "位置"],
  query: ["query", "查询"], key: ["key", "键"], keys: ["keys", "键"], score: ["score", "得分"], weight: ["weight", "权重"], products: ["query × key", "查询 × 键"],
  hidden: ["hidden", "被遮住"], output: ["output", "输出"], input: ["input", "输入"], effect: ["effect", "效果"], chance: ["chance {p}", "概率 {p}"], rank: ["rank", "名次"], rank_n: ["rank {n}", "第 {n} 名"], or: [" or ", "还是"],
  view_text: ["text", "文本"], view_matrix: ["matrix", "矩阵"], sort: ["sorted by", "排序"], two_sided: ["negative to positive", "由负到正"], token_id: ["token {id}", "词元 {id}"], dimension: ["dimension {d}", "第 {d} 维"],

  attention_lines: ["Who looks at whom?", "谁在看谁？"], attention_cross: ["Which words does each written word read from?", "每个写出的词在读哪些词？"],
  attention_of: ["Where does “{token}” look?", "“{token}”在看哪里？"], attention_to: ["Who looks at “{token}”?", "谁在看“{token}”？"], attention_all: ["What does every head look at?", "每个头都在看什么？"],
  attention_view_lines: ["lines", "连线"], attention_view_matrix: ["matrix", "矩阵"], attention_view_all: ["all heads", "所有头"],
  attention_reading_lines: [
    "Each line joins a token (left) to one it reads from (right); stronger is more attention, and the weights of a token sum to 1. Hover a token to see its numbers, click to pin it. Shift-click a head to see several at once. Keys: ↑ ↓ tokens, ← → heads, Page Up and Down layers.",
    "每条线从一个词元（左）连到它所读取的词元（右）；颜色越浓，注意力越强，每个词元的权重之和为 1。悬停可看数值，点击可固定。按住 Shift 点击可同时查看多个头。键盘：↑ ↓ 换词元，← → 换头，Page Up / Down 换层。"],
  attention_reading_matrix: ["A row for each token that looks, a column for each it can look at; stronger is more attention, and every row sums to 1. Numbers are percentages. Hover a cell for its weight, click to pin it.",
    "每行是一个在看的词元，每列是一个可被看的词元；颜色越浓，注意力越强，每行之和为 1。格中数字为百分比。悬停可看权重，点击可固定。"],
  attention_reading_all: ["Every small square is one head’s matrix: rows look, columns are looked at. Layers run from bottom to top. Click a square to enlarge it, double-click to see its lines.",
    "每个小方块是一个头的矩阵：行在看，列被看。层自下而上排列。点击放大，双击查看连线。"],
  attention_scale: ["attention weight", "注意力权重"], looks: ["looks", "在看"], looked_at: ["is looked at", "被看"], decoder_reads: ["is being written", "正在写"], encoder_reads: ["was read", "已读"],
  see_lines: ["See its lines →", "查看连线 →"], all_axes: ["heads from left to right, layers from bottom to top", "从左到右是头，从下到上是层"],
  head_layer: ["layer and head", "层与头"], head_entropy: ["entropy, bits", "熵（比特）"], head_distance: ["distance", "距离"], head_to_previous: ["to the previous token", "看前一个词元"], head_to_separator: ["to special tokens", "看特殊词元"], head_to_same: ["to the same token", "看相同词元"], head_induction: ["induction", "归纳"],

  query_key_title: ["How does “{token}” choose where to look?", "“{token}”怎样决定看哪里？"],
  query_key_reading: ["Layer {layer}, head {head}. The query is multiplied with each key, number by number; the sum, scaled, is the score, and softmax turns scores into weights that sum to 1. Hover a cell for its numbers.",
    "第 {layer} 层，头 {head}。查询与每个键逐项相乘；求和并缩放得到得分，softmax 把得分变成总和为 1 的权重。悬停可看数值。"],

  saliency_title: ["Which words did “{token}” come from?", "“{token}”来自哪些词？"], saliency_against: ["Why “{token}” rather than “{other}”?", "为什么是“{token}”而不是“{other}”？"],
  saliency_reading: ["{method}, normalised to 100 %. Warmer words mattered more. Hover or choose another output to see what it came from.", "{method}，归一化为 100 %。颜色越暖，作用越大。悬停或选择另一个输出，看它来自哪里。"],
  saliency_reading_matrix: ["{method}. A row for each output, a column for each word that could matter; every row sums to 100 %.", "{method}。每行一个输出，每列一个可能起作用的词；每行之和为 100 %。"],
  saliency_outputs: ["Outputs: choose one", "输出：选择一个"], saliency_output: ["Output", "输出"], saliency_scale: ["share of what mattered", "作用占比"], could_not_matter: ["Came later: it could not matter", "出现在后面，不可能起作用"],
  was_read: ["read", "读入"], was_written: ["written", "写出"], rather_than: ["rather than", "而不是"], adds: ["adds {n} to its score", "使得分增加 {n}"], takes: ["takes {n} from its score", "使得分减少 {n}"],
  method_gradient_x_input: ["Gradient × input", "梯度 × 输入"], method_gradient: ["Gradient norm", "梯度范数"], method_gradient_norm: ["Gradient norm", "梯度范数"], method_integrated: ["Integrated gradients", "积分梯度"], method_integrated_gradients: ["Integrated gradients", "积分梯度"], method_occlusion: ["Occlusion: each word left out in turn", "遮挡：逐个去掉每个词"],

  hidden_title: ["When did the model make up its mind?", "模型在哪一层拿定主意？"], hidden_title_of: ["When did the model settle on “{token}”?", "模型在哪一层选定“{token}”？"],
  hidden_reading: ["The best guess after each layer, bottom to top, and beside it the rank of the token named above the column. The strongest colour is rank 1: the answer is already first there. Hover a cell for the other guesses.",
    "自下而上是每一层之后的最佳猜测，旁边是该列上方词元的名次。颜色最浓为第 1 名：答案在那里已排第一。悬停可看其他猜测。"],
  chosen_token: ["the token that is followed", "所追踪的词元"], after: ["after", "在其后："], at_token: ["at", "位于"], best_here: ["Best here:", "此处最佳："],
  comparison_title: ["Which one does it lean to: {list}?", "它更倾向于哪一个：{list}？"], comparison_reading: ["The rank of each candidate after each layer, bottom to top. The strongest colour is rank 1; ▸ marks the one that is ahead.", "自下而上是每一层之后各候选词的名次。颜色最浓为第 1 名；▸ 标出领先者。"],

  neurons_title: ["What do these neurons answer to?", "这些神经元对什么有反应？"], neurons_title_of: ["What does neuron {neuron} answer to?", "神经元 {neuron} 对什么有反应？"],
  neurons_reading: ["A row for each neuron (layer·number), a column for each token. Hover a row to see it on the text, click to pin it.", "每行一个神经元（层·编号），每列一个词元。悬停某行可在文本上查看，点击可固定。"],
  neurons_reading_clusters: ["A row for each neuron (layer·number), a column for each token; neurons that fire alike stand together, and [n] begins a cluster. Hover a row to see it on the text, click to pin it.", "每行一个神经元（层·编号），每列一个词元；反应相似的神经元排在一起，[n] 表示一个簇的开始。悬停某行可在文本上查看，点击可固定。"],
  neuron: ["neuron", "神经元"], neuron_axis: ["layer·neuron", "层·神经元"], cluster: ["cluster", "簇"], activation: ["activation", "激活值"],
  top_title: ["What excites neuron {neuron} most?", "什么最能激活神经元 {neuron}？"], top_reading: ["The places of {texts} texts ({seen} tokens) where the neuron was strongest, with the words around them. The framed token is where it peaked. It fires at {fires} of all tokens.", "在 {texts} 篇文本（{seen} 个词元）中该神经元最强的位置及其上下文。加框的词元是峰值所在。它在 {fires} 的词元上激活。"],
  factors_title: ["What fires together?", "哪些在一起激活？"], factors_title_of: ["Where is factor {n} active?", "因子 {n} 在哪里活跃？"], factor: ["factor", "因子"], factor_scale: ["strength of the factor", "因子强度"], its_most: ["its most", "最大值"],
  factors_reading: ["{count} patterns that together rebuild the activations, with an error of {error}. Each sparkline runs over the tokens. Hover one to light up its tokens, click to pin it.", "{count} 个模式共同重建激活值，误差为 {error}。每条迷你图沿词元展开。悬停可点亮词元，点击可固定。"],

  similarity_title: ["Where do {a} and {b} see alike?", "{a} 与 {b} 在哪里看法相似？"], similarity_title_one: ["Which layers see alike?", "哪些层看法相似？"],
  similarity_reading: ["{measure} between the layers of {a} (rows, bottom to top) and {b} (columns) on the same texts: 1 is the same up to a rotation, 0 has nothing in common.", "在相同文本上 {a} 的各层（行，自下而上）与 {b} 的各层（列）之间的 {measure}：1 表示只差一个旋转，0 表示毫无共同之处。"],
  similarity_reading_one: ["{measure} between the layers of {a}, from bottom to top and from left to right, on the same texts: 1 is the same up to a rotation, 0 has nothing in common.", "{a} 各层之间（自下而上、从左到右）在相同文本上的 {measure}：1 表示只差一个旋转，0 表示毫无共同之处。"],
  patching_title: ["Where is “{answer}” decided?", "“{answer}”是在哪里决定的？"], patching_clean: ["clean text", "原文本"], patching_corrupted: ["changed text", "改动后的文本"],
  patching_reading: ["{tap} of the clean text was put into the changed text, one layer and position at a time. 1 brings “{answer}” back all the way, 0 leaves “{other}”.", "把原文本的 {tap} 逐层逐位置放进改动后的文本。1 表示完全恢复“{answer}”，0 表示仍是“{other}”。"],
  ablation_title: ["Which heads matter here?", "哪些头在这里起作用？"], ablation_before: ["with all heads", "所有头都在"], ablation_after_of: ["without layer {layer}, head {head}", "去掉第 {layer} 层的头 {head}"],
  ablation_reading: ["Each cell: one head is silenced, and the answer changes by so much ({what}). Layers run from bottom to top. Hover for the number, click to pin.", "每格表示静音一个头后答案的变化（{what}）。层自下而上排列。悬停可看数值，点击可固定。"],
  ablation_reading_signed: ["Each cell: one head is silenced, and the answer moves by so much ({what}), up or down. Layers run from bottom to top. Hover for the number, click to pin.", "每格表示静音一个头后答案的升降（{what}）。层自下而上排列。悬停可看数值，点击可固定。"],

  next_title: ["What may come next?", "接下来可能是什么？"],
  next_reading: ["These {count} hold {shown} of all chances; bars are against the likeliest. Entropy {entropy} bits: as unsure as a fair choice among {many} of the {vocabulary} tokens. Choose one to go on.", "这 {count} 个占全部概率的 {shown}；条形以最可能者为准。熵为 {entropy} 比特：相当于在 {vocabulary} 个词元中的 {many} 个里公平抽取。选择一个继续。"],
  walk_title: ["What happens to “{token}” on its way?", "“{token}”一路经历了什么？"], walk_reading: ["Layer {layer} of {layers}, head {head} of {heads}, counted from 0. Queries violet, keys orange, values blue; a cell’s colour is the size of its number.", "第 {layer} 层（共 {layers} 层），头 {head}（共 {heads} 个），从 0 计。查询为紫，键为橙，值为蓝；格子的颜色表示数值大小。"],
  looks_at: ["looks at", "看向"],
};

export const LANGUAGES = { en: "English", zh: "中文" };

export function say(lang, key, values = {}) {
  const entry = WORDS[key];
  if (!entry) return key.replace(/^[a-z]+_/, "").replaceAll("_", " ");
  return entry[lang === "zh" ? 1 : 0].replace(/\{(\w+)\}/g, (_, name) => values[name] ?? "");
}

// The walk says its steps in English; here is each of them in 中文. {0}, {1} … are the numbers of the English sentence.
const STEPS = {
  "Embedding": ["嵌入", "词元 {0} 变成一个含 {1} 个数的向量；它的位置也有一个向量。"],
  "The layers below": ["下面的各层", "下面的层已经改写过它。"],
  "Query, key, value": ["查询、键、值", "三个矩阵把每个向量变成三个，再切成 {0} 个头，每头 {1} 维。这里是头 {2}。"],
  "Score, scale, mask, softmax": ["打分、缩放、遮挡、softmax", "它的查询与每个键做点积，乘以 {0}；看不到的词元被遮住；softmax 把得分变成总和为一的份额。"],
  "Weighted sum": ["加权求和", "各个值按权重相加，就是这个头的答案。"],
  "Merge and project": ["合并与投影", "{0} 个头的答案并排（{1} × {2}），再由一个矩阵混合。"],
  "Feed-forward": ["前馈网络", "加到词元自己的向量上，展宽到 {0}，弯折，再收窄。"],
  "The layers above": ["上面的各层", "同样的过程再重复 {0} 次，权重各不相同。"],
  "Final norm": ["最后的归一化", "最后一次归一化把向量变成已知的大小。"],
  "Scores for every word": ["每个词的得分", "向量与词表中全部 {0} 个词比较；softmax 把得分变成概率。这就是此处的词。"],
  "The next token": ["下一个词元", "向量与词表中全部 {0} 个词比较；softmax 把得分变成概率。贪心解码取第一个；采样按概率抽取。"],
};
const LABELS = {
  "token": "词元", "position": "位置", "segment": "句段", "what enters the stack": "进入各层的向量", "query: what it looks for": "查询：它在找什么", "key: what it offers": "键：它提供什么",
  "value: what it hands over": "值：它交出什么", "attention output": "注意力输出", "widened": "展宽后", "feed-forward output": "前馈输出", "output of the last layer": "最后一层的输出", "normalised": "归一化后",
  "score": "得分", "after the mask": "遮挡后", "weight": "权重",
};

export function stepWords(lang, step) {
  const own = lang === "zh" ? STEPS[step.title] : undefined;
  if (!own) return { title: step.title, says: step.says };
  const numbers = step.says.match(/\d[\d,.]*\d|\d/g) ?? [];
  return { title: own[0], says: own[1].replace(/\{(\d)\}/g, (_, n) => numbers[n] ?? "") };
}

stepWords.label = (lang, label) => {
  if (lang !== "zh") return label;
  const part = label.match(/^(input of layer|output of layer|head) (\d+)$/);
  if (part) return { "input of layer": `第 ${part[2]} 层的输入`, "output of layer": `第 ${part[2]} 层的输出`, head: `头 ${part[2]}` }[part[1]];
  return LABELS[label] ?? label;
};
