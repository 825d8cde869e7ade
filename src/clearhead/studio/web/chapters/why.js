// Why a model said what it said: the words it came from, the neurons that fired, the factors behind them.

import { choose } from "../choose.js";
import { CORPUS } from "../corpus.js";

const SENTENCE = "The wolf came to the house and knocked at the";
const REVIEW = "A slow story, but the end is wonderful.";

// The neuron that the reader has chosen in the figure of neurons: [layer, number].
let shown = null,
  chosen = null;

/** A model that never learned has no reasons, and may not have the word. */
const learned = (reader) => reader.card?.trained !== false;
const judge = (reader) => choose(reader.models, "sentiment", (one) => one.task === "sequence-classification");
const source = (name) => `import clearhead as ch
from clearhead import explain

pipe = ch.load(${JSON.stringify(name)})`;

export const chapter = {
  slug: "why",
  title: { en: "Why did it say that?", zh: "它为什么这么说？" },
  about: {
    en:
      "Three ways to look behind an answer: the words it came from, the neurons that fired, and the patterns in " +
      "which they fire together.",
    zh: "从三个角度看答案背后：它来自哪些词，哪些神经元被激活，它们又以怎样的模式一起激活。",
  },
  input: { text: SENTENCE, model: "stories", models: (one) => one.task === "causal-lm" },
  parts: [
    {
      text: {
        en: `
An answer can be right for a poor reason, or wrong for a good one. The answer alone does not tell. But nothing in a
model is hidden from us: every number on the way can be read. The difficulty is that there are so many. This chapter
is about boiling them down.

## Which words mattered?

Every token enters the model as a vector. Push that vector a little, and the score of the answer moves a little. How
much, and in which direction, is the **gradient**; it can be computed for all tokens without trying them one by one.
Multiply it with the vector itself, and you have a measure of how much hangs on this token. Its size, as a share of
the whole, is the *saliency* of the token.

The model goes on with your sentence. Each token it wrote has a picture of its own.`,
        zh: `
答案可能碰巧对，也可能错得有理，光看答案分不出来。不过模型里没有什么对我们保密：沿途的每个数都能读到。难的是数太多。
这一章讲的，就是怎样把它们浓缩成几样看得懂的东西。

## 哪些词起了作用？

每个词元进入模型时是一个向量。把这个向量轻轻推一下，答案的得分就会动一下。动多少、往哪个方向动，就是**梯度**；
不必逐个去试，所有词元的梯度可以一次算出。把梯度与向量本身相乘，就能衡量答案有多依赖这个词元。它的大小占全部的份额，
称为这个词元的*显著性*。

模型会接着写你的句子。它写出的每个词元，都有自己的一幅图。`,
      },
    },
    {
      control: {
        name: "method",
        kind: "choice",
        label: { en: "Measured by", zh: "衡量方法" },
        value: "gradient-x-input",
        choices: [
          ["gradient-x-input", { en: "gradient × input", zh: "梯度 × 输入" }],
          ["gradient-norm", { en: "gradient norm", zh: "梯度范数" }],
          ["integrated-gradients", { en: "integrated gradients", zh: "积分梯度" }],
          ["occlusion", { en: "occlusion", zh: "遮挡" }],
        ],
      },
    },
    {
      narrow: true,
      figure: (reader) => ({
        question: "saliency",
        params: { method: reader.method, max_new_tokens: 8 },
        read: {
          en:
            "The warmer the ground behind a word, the more the chosen output hangs on it; the shares of one " +
            "output sum to 100 %. Choose another output below the text, or click one in it.",
          zh:
            "词的底色越暖，所选的输出就越依赖它；同一输出的各份额之和为 100 %。可在文本下方选择另一个输出，" +
            "也可直接点文中的词。",
        },
      }),
    },
    {
      text: {
        en: `
There is more than one way to measure, and they do not always agree.

- **Gradient × input** is quick. It looks at the slope in the one spot where the text stands.
- **Gradient norm** leaves the vector out: how sensitive is the answer here, whatever stands here?
- **Integrated gradients** walks from a neutral vector to the token’s own and averages the slopes on the way. What the
  tokens contribute then adds up to the change of the score, but for a small remainder.
- **Occlusion** needs no calculus. It puts a neutral vector in a token’s place and looks what happens.

Where they agree, believe them more. And remember what none of them says: why a word matters. A share is a place to
look, not an explanation.`,
        zh: `
衡量的方法不止一种，结果也不总是一致。

- **梯度 × 输入**最快，只看文本所在那一点的斜率。
- **梯度范数**不管向量本身：不论这里是什么词，答案在这里有多敏感？
- **积分梯度**从一个中性向量走到词元自己的向量，把沿途的斜率平均起来。这样，各词元的贡献加起来几乎正好等于得分的变化。
- **遮挡**不用微积分：把一个词元换成中性向量，看看会怎样。

几种方法一致时，可信度就高一些。也要记住它们都没有说的事：一个词*为什么*起作用。
份额告诉你该往哪里看，它本身还不是解释。`,
      },
    },
    {
      text: {
        en: `
## Why this and not that?

“Why did it say *door*?” is half a question. Rather than *what*? Much of a score is shared by all words that would fit
at all. Compare two of them, and what they share cancels out. What is left is the reason for the choice.`,
        zh: `
## 为什么是它，而不是另一个？

“为什么说 *door*？”只是半个问题。和*哪个词*比？得分里有很大一部分，是所有说得通的词共有的。拿两个词相比，
共有的部分就抵消了，剩下的才是这样选的理由。`,
      },
    },
    { control: { name: "against", kind: "text", label: { en: "Rather than", zh: "而不是" }, value: "window" } },
    {
      narrow: true,
      figure: (reader) =>
        reader.against.trim() && learned(reader)
          ? {
              question: "saliency",
              params: { method: reader.method, max_new_tokens: 1, against: reader.against },
              read: {
                en:
                  "What is explained is how far the score of the next token lies above that of the word you " +
                  "chose. Warmer words did more to part the two.",
                zh: "这里解释的是：下一个词元的得分比你所选的词高出多少。颜色越暖的词，对拉开两者差距的作用越大。",
              },
            }
          : null,
    },
    {
      text: (reader) =>
        judge(reader)
          ? {
              en: `
## Why this label?

A model that sorts texts can be asked the same. This one, \`${judge(reader).name}\`, has learned to
${judge(reader).name === "sentiment" ? "tell whether somebody liked a film" : "give a text one of a few labels"}. Find
the words that tip the scale, then change one of them.`,
              zh: `
## 为什么是这个标签？

给文本分类的模型也可以这样问。这一个叫 \`${judge(reader).name}\`，
学的是${judge(reader).name === "sentiment" ? "判断一个人喜不喜欢某部电影" : "从几个标签里给文本选一个"}。
先找到起决定作用的词，再改掉其中一个试试。`,
            }
          : { en: "", zh: "" },
    },
    {
      control: { name: "review", kind: "text", when: judge, label: { en: "A review", zh: "一则影评" }, value: REVIEW },
    },
    {
      narrow: true,
      figure: (reader) =>
        judge(reader) && reader.review.trim()
          ? {
              model: judge(reader).name,
              question: "saliency",
              text: reader.review,
              params: { method: reader.method },
              title: { en: "Which words made the label?", zh: "哪些词决定了标签？" },
              read: {
                en:
                  "The label stands below the text. The warmer the ground behind a word, the more the label " +
                  "hangs on it.",
                zh: "标签写在文本下方。词的底色越暖，标签就越依赖它。",
              },
            }
          : null,
    },
    {
      text: {
        en: `
## Neurons

Saliency looks at what goes in and what comes out. Between them lie the layers, and in each a feed-forward network
with thousands of **neurons**. A neuron fires when a pattern of its own is there: a number, an opening quotation mark,
the second half of a name. Most are silent most of the time, which makes it worth asking who speaks.

Here are the neurons that fire most strongly on your sentence, those that fire alike side by side. Click a row to
choose it for the next figure.`,
        zh: `
## 神经元

显著性看的是进去什么、出来什么。两者之间是一层一层的网络，每层都有一个前馈网络，里面有成千上万个**神经元**。
遇到属于自己的模式，神经元就会激活：一个数字、一个左引号、某个名字的后半截。多数神经元多数时候是沉默的，
所以值得问一问：是谁在说话？

下面是在你的句子上激活最强的神经元，反应相似的排在一起。点击一行，下一幅图就看它。`,
      },
    },
    {
      narrow: true,
      figure: (reader) => ({
        question: "neurons",
        params: { k: 36, clusters: 5 },
        title: { en: "Which neurons fire, and at which words?", zh: "哪些神经元被激活，在哪些词上？" },
        onAnswer: (finding) => {
          shown = finding;
          if (chosen) {
            chosen = null;
            reader.set({});
          }
        },
        onState: (now) => {
          chosen = Number.isInteger(now.neuron) ? (shown?.neurons[now.neuron] ?? null) : null;
          reader.set({});
        },
      }),
    },
    {
      text: {
        en: `
One sentence is little to judge by. A neuron that fired at *the* may answer to articles, to short words, or to the
place behind a preposition. So show it more text and look where it fires most: here your sentence and eighteen of
ours. Two or three of the words in frames usually give the pattern away. Not always: many neurons answer to several
things that have nothing to do with each other, and no name fits them.`,
        zh: `
只看一句话，难下结论。在 *the* 上激活的神经元，对应的可能是冠词，可能是短词，也可能是介词后面的位置。
所以再给它看一些文字，找出它激活最强的地方：你的句子，外加我们准备的十八句。看两三个加框的词，往往就能猜出模式。
也有猜不出的：许多神经元对应几样毫不相干的东西，起什么名字都不合适。`,
      },
    },
    {
      narrow: true,
      figure: (reader) => ({
        question: "top-tokens",
        text: `${reader.text.replace(/\s*\n\s*/g, " ")}\n${CORPUS}`,
        params: { k: 8, ...(chosen ? { layer: chosen[0], neuron: chosen[1] } : {}) },
        read: {
          en:
            "The eight places where the neuron fires most, the strongest first; the frame marks the token. " +
            "Without a choice above, it is one of the last layer that your sentence excites.",
          zh:
            "该神经元激活最强的八处，由强到弱；加框的是峰值所在的词元。上图若未选择，" +
            "这里是最后一层中被你的句子激活的一个。",
        },
      }),
    },
    {
      text: {
        en: `
## Factors

Thousands of neurons are too many to read one by one, and they do not work alone. So take the whole table of
activations, neurons by tokens, and look for a few patterns that together rebuild it: *non-negative matrix
factorisation*. Each **factor** is a group of neurons that rise and fall together along the text.

Nobody tells the method what to find. Yet in a tale there is often a factor for the first token, one for articles, one
for what is said aloud, one for line ends. To give them room, the model first goes on with your sentence for a while.`,
        zh: `
## 因子

神经元成千上万，逐个看看不过来，它们也不是单独工作的。所以把整张激活值的表（神经元 × 词元）拿来，找几个模式，
合起来能大致还原它，这叫*非负矩阵分解*。每个**因子**是一组沿着文本同起同落的神经元。

没有人告诉这个方法要找什么。可是在一段故事里，常常能看到一个因子管第一个词元，一个管冠词，一个管人物说的话，
一个管换行。为了有足够的篇幅，模型会先接着你的句子写上一段。`,
      },
    },
    {
      control: {
        name: "factors",
        kind: "range",
        label: { en: "How many factors", zh: "几个因子" },
        value: 6,
        low: 2,
        high: 12,
        step: 1,
      },
    },
    {
      figure: (reader) => ({
        question: "factors",
        params: { factors: reader.factors, max_new_tokens: 40 },
        title: { en: "Which patterns run through the text?", zh: "文本里有哪些模式？" },
        read: {
          en:
            "A curve for each factor, along the tokens; the percentage is its share of all activation. Hover a " +
            "curve to light up its words, click to keep them. Fewer factors are broader, more are finer.",
          zh:
            "每个因子一条曲线，沿词元展开；百分比是它占全部激活的份额。悬停可点亮对应的词，点击可固定。" +
            "因子越少越笼统，越多越细致。",
        },
      }),
    },
    {
      text: {
        en: `
## The same in Python

One line for each question. \`save\` writes the figure into a file that opens anywhere.`,
        zh: `
## 用 Python 做同样的事

一个问题一行代码。\`save\` 把图写进一个文件，在哪里都能打开。`,
      },
    },
    {
      code: (reader) => `
${source(reader.card?.source === "folder" ? `path/to/${reader.model}` : (reader.model ?? "stories"))}
text = ${JSON.stringify(reader.text)}

print(explain.saliency(pipe, text, method=${JSON.stringify(reader.method)}, max_new_tokens=8))
print(explain.neurons(pipe, text, top=36, clusters=5))
corpus = [text, "The dog barked, and the cat ran away."]
print(explain.top_tokens(pipe, corpus, layer=-1, neuron=0))
explain.factors(pipe, text, n=${reader.factors}, max_new_tokens=40).save("factors.html")`,
    },
  ],
};
