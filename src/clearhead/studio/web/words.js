// Every word of the studio outside its chapters and figures, in English and 中文, side by side so that neither is
// forgotten.

const WORDS = {
  navigation: ["Pages", "页面"],
  nav_lab: ["Lab", "实验室"],
  nav_chapters: ["Chapters", "章节"],
  nav_runs: ["Runs", "训练"],
  skip: ["Skip to the content", "跳到正文"],
  language: ["Language", "语言"],
  to_light: ["Light page", "浅色页面"],
  to_dark: ["Dark page", "深色页面"],
  thinking: ["The model is reading …", "模型正在阅读……"],
  cancel: ["Cancel", "取消"],
  cancelled: ["Cancelled.", "已取消。"],
  ask_again: ["Ask again", "再问一次"],
  try_again: ["Try again", "重试"],
  trouble: ["That did not work", "出了点问题"],
  to_contents: ["To the contents", "返回目录"],
  no_server: [
    "The studio does not answer. Is it still running? Start it again with “clearhead studio”, then reload this page.",
    "工作室没有回应。它还在运行吗？请用 clearhead studio 重新启动，然后刷新本页。",
  ],
  broke_off: [
    "The answer broke off before it was whole. Try again; if it stays so, the terminal where the studio runs says why.",
    "回答在完成之前中断了。请重试；如果仍然如此，运行工作室的终端会说明原因。",
  ],
  no_page: ["There is no such page here.", "这里没有这个页面。"],
  no_model_fits: [
    "No model that is here fits this chapter. Start the studio with one: clearhead studio --model NAME.",
    "这里没有适合本章的模型。请这样启动工作室：clearhead studio --model 名称。",
  ],

  chapter_n: ["Chapter {n}", "第 {n} 章"],
  previous: ["before", "上一章"],
  next: ["next", "下一章"],
  your_sentence: ["Your sentence", "你的句子"],
  second_sentence: ["Second text", "第二段文本"],
  model: ["Model", "模型"],
  text: ["Text", "文本"],
  copy: ["Copy", "复制"],
  copied: ["Copied", "已复制"],
  write: ["Write", "开始写"],
  writing: ["Writing …", "正在写……"],
  written_n: ["{n} tokens in {s} s.", "{s} 秒写出 {n} 个词元。"],
  stage_loading: ["Loading {model} …", "正在加载 {model}……"],
  stage_waiting: ["Waiting: {ahead} ahead", "排队中：前面还有 {ahead} 个"],
  stage_working: ["The model is working …", "模型正在计算……"],
  stage_layers: ["The model is working; layers done: {layers} …", "模型正在计算：已完成 {layers} 层……"],

  lede: [
    "One library for the whole attention family, with glass walls. Type a sentence: every figure here is " +
      "drawn from what the model computed for it, on this machine.",
    "一个涵盖整个注意力家族、墙壁透明的库。输入一句话：这里的每幅图，都由模型在本机上为它算出的数值画成。",
  ],
  contents_title: ["See what attention does", "看见注意力在做什么"],
  six_chapters: ["Six chapters", "六章"],
  tools: ["Tools", "工具"],
  lab_about: ["Any model, any text, any question: pick one of each.", "任选一个模型、一段文本、一个问题。"],
  runs_about: [
    "Training runs as live curves, with what the model writes along the way.",
    "训练过程的实时曲线，以及模型沿途写下的文字。",
  ],
  no_chapters: ["The chapters are missing from this installation.", "此安装中缺少章节。"],

  loading_model: ["Loading {model} …", "正在加载 {model}……"],
  no_models: [
    "There are no models here. Start the studio with one: clearhead studio --model FOLDER.",
    "这里没有模型。请这样启动工作室：clearhead studio --model 文件夹。",
  ],
  compare_with: ["Beside it", "并排比较"],
  nothing: ["nothing", "无"],
  another_model: ["another model", "另一个模型"],
  another_text: ["another text", "另一段文本"],
  other_model: ["Other model", "另一个模型"],
  other_text: ["Other text", "另一段文本"],
  add_second: ["+ a second text", "+ 第二段文本"],
  needs_second: [
    "This question is about two texts that differ in a word or two. Write the second one above.",
    "这个问题涉及两段只差一两个词的文本。请在上方写下第二段。",
  ],
  copy_link: ["Copy link", "复制链接"],
  hub_id: ["owner/name on the hub", "hub 上的 所有者/名称"],
  hub_other: ["a model of the hub …", "hub 上的模型……"],
  source_shipped: ["shipped", "内置"],
  source_folder: ["folders of yours", "你的文件夹"],
  source_hub: ["from the hub", "来自 hub"],
  n_parameters: ["{n} parameters", "{n} 个参数"],
  n_layers: ["{n} layers", "{n} 层"],
  n_layers_two: ["{a} + {b} layers", "{a} + {b} 层"],
  answered_in: ["answered in {s}", "用时 {s}"],
  same_model: ["this one", "同一模型"],
  auto: ["by itself", "自动"],
  all: ["all", "全部"],
  take_away: ["Take this head away: layer {layer}, head {head}", "去掉这个头：第 {layer} 层，头 {head}"],
  more_settings: ["More settings", "更多设置"],
  without_bits: [
    "Without layer {layer}, head {head}, the chances of the answer move by {effect} bits.",
    "去掉第 {layer} 层的头 {head}，答案的概率移动 {effect} 比特。",
  ],
  without_bits_at: [
    "Without layer {layer}, head {head}, the chances of the answer at “{token}” move by {effect} bits.",
    "去掉第 {layer} 层的头 {head}，“{token}”处答案的概率移动 {effect} 比特。",
  ],
  without_score: [
    "Without layer {layer}, head {head}, the score of the chosen word changes by {effect}.",
    "去掉第 {layer} 层的头 {head}，所选词的得分变化 {effect}。",
  ],
  answer: ["answer", "答案"],
  with_head: ["with it", "有它"],
  without_head: ["without it", "没有它"],

  runs_title: ["Training runs", "训练"],
  no_runs_folder: [
    "The studio was started without a folder of runs. Start it with --runs FOLDER to see them here.",
    "启动工作室时没有指定训练文件夹。请用 --runs 文件夹 启动，即可在此查看。",
  ],
  no_runs: [
    "There are no runs in this folder yet. A run appears here as soon as it begins: clearhead train " +
      "language-model data.train=my.txt out=runs/mine.",
    "此文件夹中还没有训练。训练一开始就会出现在这里：clearhead train language-model data.train=my.txt out=runs/mine。",
  ],
  choose_runs: ["Choose a run to see its curves.", "选择一次训练以查看曲线。"],
  run_ended: ["ended", "已结束"],
  run_stopped: ["stopped", "已停止"],
  run_going: ["running", "进行中"],
  run_quiet: ["silent for {t}", "已静默 {t}"],
  chart_loss: ["Loss", "损失"],
  chart_rate: ["Learning rate", "学习率"],
  chart_speed: ["Tokens a second", "每秒词元数"],
  chart_gradient: ["Length of the gradient", "梯度长度"],
  chart_metric: ["Held-out {name}", "留出数据：{name}"],
  training_line: ["training", "训练"],
  held_out_mark: ["held-out", "留出数据"],
  step: ["step", "步"],
  step_n: ["step {n}", "第 {n} 步"],
  of_steps: ["step {n} of {all}", "第 {n} 步，共 {all} 步"],
  time_left: ["{t} left", "还剩 {t}"],
  samples: ["What it writes", "它写的内容"],
  sample_at: ["at step", "在第几步"],
  recipe: ["Recipe", "配方"],
  scale_log: ["log scale", "对数刻度"],
  smooth: ["smoothed", "平滑"],
  waiting_steps: ["Waiting for the first steps …", "等待最初几步……"],
  test_result: ["On test data", "测试数据"],
};

// ---- questions and their parameters

/** Not a finding but a text, streamed: the lab lists it among the questions. */
export const WRITE = {
  name: "write",
  group: "The answer",
  title: "Let it write",
  help: "The model goes on with the text, token by token, or writes its translation.",
  second: "",
  text: false,
  params: [
    { name: "max_new_tokens", kind: "int", default: 48, low: 1, high: 512, help: "How many tokens to write at most." },
    {
      name: "temperature",
      kind: "float",
      default: null,
      low: 0.01,
      high: 10,
      help: "Above 1: bolder; below 1: safer. Nothing: always the likeliest.",
    },
    { name: "top_k", kind: "int", default: null, low: 1, high: 100000, help: "Only the k likeliest tokens." },
    {
      name: "top_p",
      kind: "float",
      default: null,
      low: 0.01,
      high: 1,
      help: "Only the likeliest that together reach this share.",
    },
    { name: "num_beams", kind: "int", default: null, low: 1, high: 10, help: "How many texts are followed at once." },
    { name: "seed", kind: "int", default: null, low: 0, high: 2147483647, help: "The same seed gives the same text." },
  ],
};

const QUESTIONS = {
  attention: ["谁在看谁？", "每个头的注意力权重，以及概括每个头的几个数：多分散，看多远。"],
  "query-key": ["一个头怎样选择？", "近看一个头：一个查询与各个键逐项相乘，得到得分，再变成权重。"],
  "attention-steps": [
    "一层注意力，一步一步怎样算？",
    "一层注意力的六步：向量、乘积、缩放、softmax、加权求和、合并各头。",
  ],
  ablation: ["一个头值多少？", "逐个去掉每个头：模型的答案变化多大？"],
  saliency: ["哪些词起了作用？", "每个词元对模型所写、所填或所判断的内容有多大作用。"],
  patching: ["在哪里决定的？", "两段只差一个词的文本：把第一段在每一层、每个位置的结果放进第二段的计算。"],
  neurons: ["哪些神经元被激活？", "前馈层的神经元在每个词元上的激活强度；也可按簇显示。"],
  "top-tokens": ["什么能激活一个神经元？", "在一组文本（每行一段）中，某个神经元最强的位置。"],
  factors: ["有哪些主题？", "把许多神经元的激活值分解成几个沿文本起伏的因子。"],
  similarity: ["两层看法相似吗？", "把每一层与其他每一层比较：同一模型或另一模型，一段或多段文本（每行一段）。"],
  "hidden-states": ["答案何时出现？", "每一层之后模型会说什么：某个词元的名次，以及最可能的词元。"],
  comparison: ["这个词还是那个词？", "同一位置的两个或更多候选词，逐层追踪。"],
  "next-token": ["接下来可能是什么？", "最可能的下一个词元，以及模型给出的概率。"],
  beams: ["答案是怎样搜索的？", "束搜索像一棵生长的树：跟随了什么，放弃了什么，最后怎样排名。"],
  walk: ["它是怎样得到的？", "跟随一个词元逐步穿过一层，用真实的数值。"],
  sampling: ["下一个词元怎样抽取？", "经过温度、top-k 和 top-p 前后的概率，以及若干次抽取。"],
  prediction: ["它怎样判断？", "分类器的标签、被遮住的词、一句是否接着另一句、答案在哪里。"],
  positions: ["它怎样知道顺序？", "模型的位置方案：相加的向量、旋转，或表示距离的数。"],
  parameters: ["参数都在哪里？", "模型的每个部分及其形状和大小。"],
  cache: ["缓存省下了什么？", "写作的每一步：没有缓存时要重新计算什么，有缓存时只需读取什么。"],
  write: ["让它写", "模型逐个词元地续写文本，或写出译文。"],
};
const GROUPS = {
  Attention: "注意力",
  "Why did it say that?": "它为什么这样说？",
  Neurons: "神经元",
  "Layer by layer": "逐层",
  "The answer": "答案",
  "The model itself": "模型本身",
};
const PARAMS = {
  layers: ["layers", "层", "哪些层，从 0 数起：3，或 0-2,5。留空：全部。"],
  heads: ["heads", "头", "每层的哪些头。留空：全部。"],
  layer: ["layer", "层", "哪一层，从 0 数起；-1 是最后一层。"],
  head: ["head", "头", "该层的哪个头，从 0 数起。"],
  words: ["whole words", "整词", "用整词代替词元。"],
  side: ["side", "部分", "编码器、解码器，或从解码器到编码器。"],
  target: ["what it writes", "它写出的", "让模型写出的内容。留空：它自己的答案。"],
  position: ["token", "词元", "哪个词元，从 0 数起；-1 是最后一个。"],
  positions: ["tokens", "词元", "哪些词元，从 0 数起：3，或 0-2,5。"],
  outputs: ["tokens", "词元", "解释哪些词元，从 0 数起：3，或 0-2,5。"],
  chosen: ["chosen word", "所选的词", "一个词，或分类器的一个标签。放在双引号里则正是该词元。"],
  against: ["rather than", "而不是", "为什么是这个而不是那个？"],
  how: ["taken away by", "去掉方式", "头什么也不说，或总是说它的平均值。"],
  k: ["how many", "多少个", "列出多少个。"],
  method: ["method", "方法", "怎样衡量。"],
  max_new_tokens: ["new tokens", "新词元", "最多写多少个词元。"],
  steps: ["steps", "步数", "积分梯度所取的点数。"],
  tap: ["tensor", "张量", "每一层的哪个张量。"],
  by: ["one at a time", "逐个", "逐个位置，或逐个头。"],
  clusters: ["clusters", "簇", "把一起激活的神经元分成这么多组。"],
  seed: ["seed", "种子", "相同的种子给出相同的结果。"],
  neuron: ["neuron", "神经元", "哪一个，从 0 数起。留空：由第一段文本激活的一个。"],
  around: ["tokens around", "前后词元", "两侧各显示多少个词元。"],
  factors: ["factors", "因子", "多少个因子。"],
  other: ["second model", "第二个模型", "用来比较的另一个模型。留空：本模型的各层。"],
  measure: ["measure", "度量", "CKA，或平均典型相关。"],
  other_layers: ["its layers", "其层", "第二个模型的哪些层。留空：全部。"],
  unbiased: ["unbiased", "无偏", "CKA：词元少时不会偏高的估计。"],
  variance: ["variance", "方差", "CCA：每层保留的方差比例。"],
  skip: ["skip", "跳过", "每段文本开头略去多少个词元。"],
  candidates: ["candidates", "候选词", "用逗号分开的词。留空：最可能的两个。"],
  num_beams: ["beams", "束", "同时跟随多少条文本；1 表示每次取最可能的。"],
  length_penalty: ["length penalty", "长度惩罚", "大于 1 偏好较长的答案。留空：模型自己的设定。"],
  beside: ["others", "其他", "只有一条束时：显示多少个未选的词元。"],
  numbers: ["numbers", "数值个数", "每个向量显示多少个数。"],
  temperature: ["temperature", "温度", "大于 1 更大胆；小于 1 更稳妥。"],
  top_k: ["top-k", "top-k", "只留最可能的 k 个词元。"],
  top_p: ["top-p", "top-p", "只留总概率达到此份额的最可能词元。"],
  draws: ["draws", "抽取次数", "抽取多少个词元。"],
  published: ["published size", "已公开的规模", "改看一个已公开的规模，按名称：gpt2。不需要权重。"],
  choices: ["choices", "选项", "多项选择：用逗号分开的续写。"],
  length: ["length", "长度", "最长多少个词元。"],
};
const CHOICES = {
  auto: "自动",
  encoder: "编码器",
  decoder: "解码器",
  cross: "交叉",
  zero: "置零",
  mean: "取平均",
  "gradient-x-input": "梯度 × 输入",
  "gradient-norm": "梯度范数",
  "integrated-gradients": "积分梯度",
  occlusion: "遮挡",
  output: "输出",
  input: "输入",
  position: "位置",
  head: "头",
  cka: "CKA",
  cca: "CCA",
};

export function questionWords(lang, question) {
  const own = lang === "zh" ? QUESTIONS[question.name] : null;
  return { title: own?.[0] ?? question.title, help: own?.[1] ?? question.help };
}

export function paramWords(lang, param) {
  const own = PARAMS[param.name];
  return {
    name: own?.[lang === "zh" ? 1 : 0] ?? param.name.replaceAll("_", " "),
    help: lang === "zh" && own ? own[2] : param.help,
  };
}

// ---- a text to begin with, of the kind that the model knows

const LINES =
  "The boy was sad because he had lost his ball.\nA young girl is playing with a brown dog.\nThe king gave " +
  "the queen a golden ring.";
const TEXTS = {
  "causal-lm": ["The boy was sad because he had lost his", "The girl was sad because she had lost her"],
  "seq2seq-lm": ["A young girl is playing with a brown dog.", "A young man is playing with a brown dog."],
  "masked-lm": ["She opened the [MASK] and read it aloud.", "The letter was from her father."],
  pretraining: ["She opened the [MASK] and read it aloud.", "The letter was from her father."],
  "next-sentence": ["The dog ran into the garden.", "It was looking for its ball."],
  // a shipped model that knows one kind of text
  intents: ["I lost my card. What should I do?", "I found my card. What should I do?"],
  "question-answering": ["Who wrote the book?", "The book was written by Mary Shelley in 1818."],
};
const TWINS = {
  // they differ in one word, and the answers differ too
  "causal-lm": ["The king had a daughter, and he loved", "The king had a son, and he loved"],
  "seq2seq-lm": ["The dog is running.", "A dog is running."],
  "masked-lm": ["She opened the book and began to [MASK].", "She opened the door and began to [MASK]."],
};
TWINS.pretraining = TWINS["masked-lm"];
const OTHERWISE = ["A slow story, but the end is wonderful.", "A slow story, but the end is terrible."];

export function sample(question, card, second = false) {
  if (question.name === "top-tokens" || question.name === "similarity") return LINES;
  const text = ((question.second === "needed" && TWINS[card.task]) ||
    (TEXTS[card.name] ?? TEXTS[card.task] ?? OTHERWISE))[second ? 1 : 0];
  return /roberta|bart|camembert/.test(card.family ?? "") ? text.replaceAll("[MASK]", "<mask>") : text;
}

export function say(lang, key, values = {}) {
  if (key.startsWith("group ")) return lang === "zh" ? (GROUPS[key.slice(6)] ?? key.slice(6)) : key.slice(6);
  if (key.startsWith("choice ")) return lang === "zh" ? (CHOICES[key.slice(7)] ?? key.slice(7)) : key.slice(7);
  const entry = WORDS[key];
  if (!entry) return key.replaceAll("_", " ");
  return entry[lang === "zh" ? 1 : 0].replace(/\{(\w+)\}/g, (_, name) => values[name] ?? "");
}
