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

  chapter_needs: [
    "This chapter is about models that are not here: {models}. They are part of the trained models that Clearhead " +
      "ships: pip install “clearhead[zoo]”.",
    "本章要用的模型不在这里：{models}。它们属于 Clearhead 附带的训练好的模型：pip install “clearhead[zoo]”。",
  ],
  no_stores: ["no store is here", "这里没有资料库"],
  library_nothing: ["(nothing)", "（没有写）"],
  library_alone: ["no library", "没有资料库"],
  library_passage: ["Passage {n}: {name}", "段落 {n}：{name}"],
  library_back: ["Put it back", "恢复原文"],
  library_try: ["Write “{other}” for “{answer}”", "把“{answer}”改成“{other}”"],
  library_before: ["As it stands in {store}", "按 {store} 的原文"],
  library_after: ["With your words", "按你的改写"],
  library_same: ["Change a passage, and the model is asked again.", "改动一个段落，就会重新问模型。"],
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
    "Without layer {layer}, head {head}, the probabilities of the answer move by {effect} bits.",
    "去掉第 {layer} 层的头 {head}，答案的概率移动 {effect} 比特。",
  ],
  without_bits_at: [
    "Without layer {layer}, head {head}, the probabilities of the answer at “{token}” move by {effect} bits.",
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
  chart_speed: ["{units} a second", "每秒{units}数"],
  units_token: ["Tokens", "词元"],
  units_example: ["Examples", "样本"],
  units_patch: ["Patches", "图块"],
  units_note: ["Notes", "音符"],
  units_unit: ["Units", "单位"],
  units_several: ["Tokens or other units", "词元或其他单位"],
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
  "intents-rnn": ["I lost my card. What should I do?", "I found my card. What should I do?"],
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

const OF_A_LIBRARY = "What is the capital of Chad?";
const OF_WORDS = {
  neighbours: "king - man + woman",
  "word-in-context":
    "He put his money in the bank.\nThe bank raised its interest rates.\nShe works as a clerk at the bank.\n\n" +
    "They sat on the bank of the river.\nThe boat was tied to the bank.\nTrees grew along the bank of the stream.",
  "word-map": "man -> woman, king -> queen, father -> mother, brother -> sister, boy -> girl",
};

export function sample(question, card, second = false) {
  if (question.name in OF_WORDS) return OF_WORDS[question.name];
  if (["store-map", "passages", "retrieval-ablation"].includes(question.name)) return OF_A_LIBRARY;
  if (["top-tokens", "similarity", "neuron-probe"].includes(question.name)) return LINES;
  const text = ((question.second === "needed" && TWINS[card.task]) ||
    (TEXTS[card.name] ?? TEXTS[card.task] ?? OTHERWISE))[second ? 1 : 0];
  return /roberta|bart|camembert/.test(card.family ?? "") ? text.replaceAll("[MASK]", "<mask>") : text;
}

export const known = (key) => key in WORDS;

export function say(lang, key, values = {}) {
  const entry = WORDS[key];
  if (!entry) return key.replaceAll("_", " ");
  return entry[lang === "zh" ? 1 : 0].replace(/\{(\w+)\}/g, (_, name) => values[name] ?? "");
}
