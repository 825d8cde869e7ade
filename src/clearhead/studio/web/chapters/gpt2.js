// GPT-2, from the walk of one token to the text it writes, and where its parameters live.

const SENTENCE = "Once upon a time there was a king who had a beautiful";
const number = (value) =>
  Math.round(value ?? 0)
    .toString()
    .replace(/\B(?=(\d{3})+$)/g, ",");

// What the reader sets in the figure about sampling is what the model then writes with.
let drawnWith = { temperature: 1 };
let moved = {}; // what was moved since
const defined = (settings) =>
  Object.fromEntries(Object.entries(settings).filter(([, value]) => value !== null && value !== undefined));

/** What kind of model the reader looks at, in a sentence. */
function model(reader) {
  const size = number(reader.card?.parameters);
  if (reader.model === "stories")
    return {
      en:
        `The model on this page is called \`stories\`. It is a GPT-2 in everything ` +
        `but size, with ${size} parameters, and it has read old children’s books ` +
        `and nothing else. So give it the beginning of a tale, in English.`,
      zh:
        `本页的模型叫 \`stories\`，除了规模小（${size} 个参数），其余都和 GPT-2 ` +
        `一样。它只读过英文的老童书，别的一概没读过。所以请给它一个英文故事的开头。`,
    };
  return {
    en: `The model on this page is \`${reader.model}\`, a GPT-2 with ${size} parameters.`,
    zh: `本页的模型是 \`${reader.model}\`，一个有 ${size} 个参数的 GPT-2。`,
  };
}

/** What `ch.load` is given in the code: a name, or the path of a folder, which only its owner knows. */
const nameOrPath = (reader) =>
  reader.card?.source === "folder" ? `path/to/${reader.model}` : (reader.model ?? "stories");

export const chapter = {
  slug: "gpt2",
  title: { en: "GPT-2, which writes", zh: "GPT-2：会写的模型" },
  about: {
    en: "A model that does one thing: it guesses the next token. Then it reads its own guess, and guesses again.",
    zh: "只做一件事的模型：猜下一个词元。猜完，把自己的答案也读进去，再猜下一个。",
  },
  input: { text: SENTENCE, model: "stories", models: (one) => one.family === "gpt2" && one.task === "causal-lm" },
  parts: [
    {
      text: (reader) => ({
        en: `
A language model reads the beginning of a text and says of every token it knows how likely that token is to come next.
Take one of them, put it at the end, and ask again. That is all there is to writing.

${model(reader).en} Change the sentence above whenever you like: every figure is computed anew.`,
        zh: `
语言模型读一段文字的开头，然后说出它认识的每个词元接在后面的可能性各有多大。取其中一个，接到末尾，再问一遍。所谓写作，
不过如此。

${model(reader).zh}上面的句子可以随时修改，每幅图都会重新计算。`,
      }),
    },
    {
      narrow: true,
      figure: (reader) => ({
        question: "next-token",
        hooks: { onPick: (one) => reader.set({ text: reader.text + one.token }) },
        title: { en: "What may come next?", zh: "接下来可能是什么？" },
        read: {
          en:
            "The ten likeliest tokens with the probabilities the model gives them; ␣ is a space. Choose one: it " +
            "joins your sentence, and the model guesses again.",
          zh: "最可能的十个词元，以及模型给它们的概率；␣ 表示空格。点一个，它就接到你的句子后面，模型接着再猜。",
        },
      }),
    },
    {
      text: {
        en: `
## One token, all the way up

Before the model can guess, the last token of your sentence has to climb through every layer. First its number in the
vocabulary becomes a vector, and a vector for its place is added. In each layer three matrices make a {q:query}, a
{k:key} and a {v:value} of it. The query is held against the keys of the tokens so far, and a mixture of their values
comes back. Then a feed-forward network, four times as wide, works on the token alone.

Neither result takes the vector’s place. Both are *added* to it. So the vector is a road that runs from the bottom to
the top, and each layer only drops something onto it. At the very top it is held against the vectors of all tokens in
the vocabulary, and the ones that fit best are the likeliest.

The numbers below are those of your sentence.`,
        zh: `
## 跟着一个词元走到顶

模型要猜，先得让句子的最后一个词元爬完所有的层。词元在词表里的编号变成一个向量，再加上代表位置的向量。在每一层，
三个矩阵把它变成{q:查询}、{k:键}和{v:值}。查询与前面各词元的键逐一比对，换回这些词元的值的加权混合。接着，
一个宽四倍的前馈网络单独处理这个词元。

这两次的结果都不取代原来的向量，而是*加*上去。向量像一条从底通到顶的路，每一层只往路上添点东西。到了最顶端，
它与词表里所有词元的向量比对，最吻合的就是最可能的下一个词元。

下面的数字都来自你的句子。`,
      },
    },
    {
      control: {
        name: "layer",
        kind: "choice",
        label: { en: "Which layer to walk through", zh: "走进哪一层" },
        value: 0,
        choices: [
          [0, { en: "the first", zh: "第一层" }],
          [-1, { en: "the last", zh: "最后一层" }],
        ],
      },
    },
    {
      figure: (reader) => ({
        question: "walk",
        params: { layer: reader.layer },
        read: {
          en:
            "Each step shows the first numbers of a vector, or one number for each token looked at. Queries are " +
            "violet, keys orange, values blue; a stronger colour is a larger number. The grey names are those " +
            "under which a trace keeps the tensor.",
          zh:
            "每一步显示一个向量开头的几个数，或所看的每个词元各一个数。查询为紫，键为橙，值为蓝；颜色越浓，" +
            "数值越大。灰色的名字是追踪（trace）时保存该张量所用的名字。",
        },
      }),
    },
    {
      text: {
        en: `
## No looking ahead

In training, the model guesses every token of a text at once. That would be no exercise if it could peek at the
answer. So a **mask** hides what comes later: a token looks at itself and at what stands before it, and at nothing
else. BERT, in the chapter before, looks both ways. That is why BERT is good at reading and GPT-2 can write.

In the matrix below, everything to the right of the diagonal stays empty. The first column is often strong in many
heads: one that finds nothing to look for rests its eyes on the first token.`,
        zh: `
## 不许往后看

训练时，模型同时猜一段文字里的每一个词元。要是能偷看答案，这练习就没有意义了。所以用**掩码**把后面的内容遮住：
一个词元只能看自己和前面的词元，别的都看不到。上一章的 BERT 左右都能看。正因如此，BERT 擅长阅读，而 GPT-2 会写。

下面的矩阵里，对角线右侧一片空白。许多头的第一列颜色很浓：一个头如果没什么要找的，目光就停在第一个词元上。`,
      },
    },
    {
      figure: () => ({
        question: "attention",
        state: { view: "matrix" },
        title: { en: "Who can look at whom?", zh: "谁能看到谁？" },
        read: {
          en:
            "A row for each token that looks, a column for each it can look at; numbers are percentages, and " +
            "every row sums to 100. What comes later is hidden. Choose another layer or head, or see all of " +
            "them.",
          zh:
            "每行是一个在看的词元，每列是一个可被看的词元；数字是百分比，每行之和为 100。后面的词元被遮住。" +
            "可以换一层、换一个头，也可以查看全部。",
        },
      }),
    },
    {
      text: {
        en: `
## What is worth keeping

The mask has a welcome consequence. An earlier token never sees a later one, so nothing about it changes when the text
grows: its {k:keys} and {v:values} stay right for good. Keep them, and each step has to compute one new token only.
The others are looked at, not computed again. This store is the **key/value cache**, and every model that writes uses
one.

Without it, each token costs more than the one before. With it the cost hardly grows; what grows is the memory. The
figure counts both for the next twelve tokens that the model writes. It counts products and measures no time.`,
        zh: `
## 值得留下的东西

掩码带来一个好处。前面的词元看不到后面的，所以文字变长时，它的一切都不变：{k:键}和{v:值}一旦算好就一直有效。
把它们存下来，每一步就只需计算一个新词元，其余的只要看，不必重算。这个仓库叫**键值缓存**（KV cache），
所有会写的模型都用它。

没有缓存，写每个词元都比写前一个更费事。有了缓存，计算量几乎不涨，涨的是内存。
下图为模型接下来写的十二个词元分别数出两种情况；数的是乘加次数，不是时间。`,
      },
    },
    { figure: () => ({ question: "cache", params: { max_new_tokens: 12 } }) },
    {
      text: {
        en: `
## Choosing

The model gives probabilities. It does not choose. Always taking the likeliest token, *greedy* decoding, is safe and
soon goes round in circles. Drawing by probability is livelier, but every now and then something very unlikely slips
in and spoils the rest. Three knobs lie between the two:

- **Temperature** divides the scores before they become probabilities. Below 1 the likely gets likelier; above 1 the
  differences shrink.
- **Top-k** keeps the k likeliest tokens and drops the others.
- **Top-p** keeps as many as it takes to reach a share p: few where the model is sure, many where it is not.`,
        zh: `
## 怎么选

模型只给概率，不做选择。每次都取最可能的词元叫*贪心*解码，稳妥，但很快就会原地打转。按概率随机抽取更有生气，
只是偶尔会混进一个极不可能的词元，后面就全乱了。在两者之间，有三个旋钮：

- **温度**：得分变成概率之前，先除以它。小于 1，可能的更可能；大于 1，差距缩小。
- **top-k**：只留最可能的 k 个词元，其余去掉。
- **top-p**：从最可能的开始，留到总概率达到 p 为止。模型有把握时留得少，没把握时留得多。`,
      },
    },
    {
      figure: (reader) => ({
        question: "sampling",
        params: defined(drawnWith),
        state: moved,
        onState: (now) => {
          moved = now;
          reader.set({});
        },
        hooks: {
          onSettings: (set) => {
            drawnWith = defined(set);
            moved = {};
            reader.set({});
          },
        },
        read: {
          en:
            "The outline is the probability as the model gives it, the bar what the three settings make of it. Move " +
            "them: the probabilities are computed anew from the model’s scores. The draws are real ones, each with a " +
            "seed of its own.",
          zh:
            "空心框是模型给出的概率，实心条是三个设置作用之后的概率。移动滑块，概率便由模型的得分重新算出。" +
            "抽取结果是真实抽出来的，每次各有一个种子。",
        },
      }),
    },
    {
      text: {
        en: `
Now let it write with these settings. Every press of the button draws anew.`,
        zh: `
现在用这些设置让它写。每按一次，都会重新抽取。`,
      },
    },
    { write: () => ({ options: { do_sample: true, max_new_tokens: 60, ...defined({ ...drawnWith, ...moved }) } }) },
    {
      text: {
        en: `
## Where 124 million parameters live

The smallest published GPT-2 has 124,439,808 parameters. To say where they are, nobody needs the weights: the
configuration is enough, twelve layers of width 768 and a vocabulary of 50,257.

Nearly a third is one table: a vector for every token. It serves twice, at the bottom to read and at the top to
compare. Of the rest, two thirds are the feed-forward networks, one third is attention. What the family is famous for
is the smaller part.`,
        zh: `
## 一亿两千四百万个参数都在哪里

已发布的最小的 GPT-2 有 124,439,808 个参数。要知道它们在哪里，并不需要权重，有配置就够了：十二层，宽度 768，词表
50,257。

将近三分之一是一张表：每个词元一个向量。这张表用两次，在底部用来读，在顶部用来比对。余下的参数里，三分之二在前馈网络，
三分之一在注意力。让这个家族成名的部分，反而是较小的那一份。`,
      },
    },
    { figure: () => ({ question: "parameters", params: { published: "gpt2" }, text: "" }) },
    {
      text: (reader) => ({
        en: `And the same for \`${reader.model}\`, the model of this page.`,
        zh: `再看本页的模型 \`${reader.model}\`。`,
      }),
    },
    { figure: () => ({ question: "parameters", text: "" }) },
    {
      text: {
        en: `
## The same in Python

Every figure of this chapter is a finding that can be printed, saved as one HTML file, or read as plain numbers.`,
        zh: `
## 用 Python 做同样的事

本章的每幅图都是一个“发现”（finding），可以打印，可以存成单个 HTML 文件，也可以直接读出数字。`,
      },
    },
    {
      code: (reader) => `
import clearhead as ch
from clearhead import explain

pipe = ch.load(${JSON.stringify(nameOrPath(reader))})
text = ${JSON.stringify(reader.text)}

print(explain.next_token(pipe, text))
print(explain.walk(pipe, text, layer=${reader.layer}))
explain.attention(pipe, text).save("attention.html")
print(explain.caching(pipe, text, max_new_tokens=12))
print(explain.sampling(pipe, text, temperature=0.8, top_k=40))
how = {"do_sample": True, "temperature": 0.8, "top_k": 40, "seed": 1}
print(pipe.generate(text, max_new_tokens=60, **how))
print(explain.parameters("gpt2"))`,
    },
  ],
};
