// Layer by layer: what the model would say if it had to stop early, and when it makes up its mind.

import { choose } from "../choose.js";
import { CORPUS } from "../corpus.js";

const SENTENCE = "The king had a daughter, and he loved";
const SECOND = "The queen had a son, and she loved";
const HIDDEN = "The cat sat on the [MASK] and fell asleep.";
const SOURCE = "A young girl is playing with a brown dog.";

/** The reader’s candidates; a model that never learned may not have the words, and shows its own two likeliest. */
const candidates = (reader) => (reader.card?.trained === false ? {} : { candidates: reader.candidates });
const guesses = (reader) =>
  choose(reader.models, "bert-mini", (one) => ["masked-lm", "pretraining"].includes(one.task));
const translator = (reader) => choose(reader.models, "translate-en-de", (one) => one.task === "seq2seq-lm");

/** What `ch.load` is given in the code: a name, or the path of a folder, which only its owner knows. */
const nameOrPath = (reader) =>
  reader.card?.source === "folder" ? `path/to/${reader.model}` : (reader.model ?? "stories");

export const chapter = {
  slug: "layers",
  title: { en: "Layer by layer", zh: "逐层来看" },
  about: {
    en: "Stop the model after each layer and ask what it would say. The answer does not fall from the sky: it rises.",
    zh: "让模型在每一层之后停下，问它此刻会说什么。答案不是从天而降，而是一层层浮上来的。",
  },
  input: { text: SENTENCE, second: SECOND, model: "stories", models: (one) => one.task === "causal-lm" },
  parts: [
    {
      text: {
        en: `
From layer to layer, a token is one vector of the same length: its **hidden state**. A layer reads it and adds
something to it. Only the last one is meant to be turned into words: it goes through a final norm and is held against
the vectors of the whole vocabulary.

But nothing keeps us from doing that earlier. Take the hidden state after the third layer, send it through the same
norm and the same table, and read what the model would say if it had to stop there. It was never trained for this, so
the first layers speak in riddles. Then, somewhere on the way, the answer appears.`,
        zh: `
从一层到下一层，一个词元始终是一个同样长度的向量，叫**隐藏状态**。每一层读它，再往上加点东西。
只有最后的隐藏状态才真正用来变成词：先过最后的归一化，再与整个词表的向量比对。

不过，没有什么妨碍我们提前这么做。取第三层之后的隐藏状态，送进同一个归一化、同一张表，
就能读出模型如果停在那里会说什么。它从没受过这样的训练，所以开头几层像在说谜语。然后，走到某一层，答案出现了。`,
      },
    },
    {
      figure: () => ({
        question: "hidden-states",
        params: { k: 5 },
        title: { en: "What would it say after each layer?", zh: "每一层之后，它会说什么？" },
        read: {
          en:
            "Layers run from bottom to top, the text from left to right. A cell holds the best guess for the " +
            "next token, and the rank of the token that really came next (in the last column, of the model’s " +
            "own answer). The strongest colour is rank 1. Hover a cell for the runners-up.",
          zh:
            "层自下而上，文本从左到右。每格是对下一个词元的最佳猜测，" +
            "以及真正出现的下一个词元的名次（最后一列是模型自己的答案）。颜色最浓为第 1 名。" +
            "悬停可看其余的猜测。",
        },
      }),
    },
    {
      text: {
        en: `
Read a column upwards. At the bottom stands the embedding, which has looked at nothing yet: it often just names the
token itself. Some words settle low, because the word before decides them. Others need the whole sentence and settle
late, or never. Where a column stays faint to the top, the model was surprised by what came next.

The top row is no guess at a guess. It is the model’s own answer, digit for digit.

## This word or that one?

Rank is most telling when two words compete. *The king had a daughter, and he loved* … *her*, says a reader who has
understood. But the person named last is *he*, and a hasty reader says *him*. Give two or more candidates and follow
them.`,
        zh: `
把一列自下而上读。最下面是嵌入，它还什么都没看，往往只是报出词元自己的名字。有的词在低层就定了，
因为前一个词已经决定了它。有的需要整句话，很晚才定，或者始终定不下来。一列到顶颜色都没有浓起来，
说明接下来的词出乎模型的意料。

最上面一行不是猜测的猜测，它就是模型自己的答案，一位数字也不差。

## 这个词，还是那个词？

两个词竞争的时候，名次最能说明问题。*The king had a daughter, and he loved* ……读懂了的人会说 *her*。可是刚刚提到的是
*he*，读得急的人会说 *him*。给出两个或更多候选，看它们一路怎样变化。`,
      },
    },
    {
      control: {
        name: "candidates",
        kind: "text",
        label: { en: "Candidates, with commas between", zh: "候选词，用逗号分开" },
        value: "her, him",
      },
    },
    {
      narrow: true,
      figure: (reader) => ({
        question: "comparison",
        params: candidates(reader),
        read: {
          en:
            "A column for each candidate, layers from bottom to top; the number is its rank among all tokens, " +
            "and ▸ marks the one that is ahead. Hover a cell for its probability.",
          zh: "每列一个候选词，层自下而上；数字是它在全部词元中的名次，▸ 标出领先的一个。悬停可看概率。",
        },
      }),
    },
    {
      text: {
        en: `
Now the same with the other sentence at the top of the page. Everything that spoke for *her* now speaks for *him*. If
the model goes by meaning, the winner changes too; if it goes by habit, the same word wins twice.`,
        zh: `
再换成页面顶部的第二句。原来支持 *her* 的线索，现在都支持 *him*。模型若凭意思判断，赢家也会换；若凭习惯，
两次赢的就是同一个词。`,
      },
    },
    {
      narrow: true,
      figure: (reader) =>
        reader.second.trim()
          ? {
              question: "comparison",
              text: reader.second,
              params: candidates(reader),
              read: {
                en: "As above, for the second sentence. Look for the layer in which the lead changes hands.",
                zh: "同上，换成第二句。留意领先者易主的那一层。",
              },
            }
          : null,
    },
    {
      text: (reader) =>
        guesses(reader)
          ? {
              en: `
## A model that reads both ways

BERT does not go on with a text, it fills gaps. Its hidden state at the gap can be asked in the same way. At the
bottom it knows only that something is missing; what it is comes from both sides.`,
              zh: `
## 双向阅读的模型

BERT 不续写，它填空。空缺处的隐藏状态可以用同样的办法来问。在最底层，它只知道这里缺了什么；缺的到底是什么，
要靠左右两边的词来告诉它。`,
            }
          : { en: "", zh: "" },
    },
    {
      control: {
        name: "hidden",
        kind: "text",
        when: guesses,
        label: { en: "A sentence with a gap: [MASK]", zh: "带空缺的句子：[MASK]" },
        value: HIDDEN,
      },
    },
    {
      narrow: true,
      figure: (reader) =>
        guesses(reader) && reader.hidden.includes("[MASK]")
          ? {
              model: guesses(reader).name,
              question: "hidden-states",
              text: reader.hidden,
              params: { k: 8 },
              title: { en: "When does the missing word appear?", zh: "缺的词在哪一层出现？" },
              read: {
                en:
                  "The best guess for the gap after each layer, from bottom to top, with the rank of the word " +
                  "that wins in the end. Hover a cell for the other guesses.",
                zh: "自下而上是每一层之后对空缺的最佳猜测，以及最终胜出的词的名次。悬停可看其他猜测。",
              },
            }
          : null,
    },
    {
      text: (reader) =>
        translator(reader)
          ? {
              en: `
## A model with two stacks

A translator has an {enc:encoder} that reads and a {dec:decoder} that writes. The decoder’s layers can be asked too,
and they answer in the other language.`,
              zh: `
## 既有编码器又有解码器的模型

翻译模型由负责读的{enc:编码器}和负责写的{dec:解码器}组成。解码器的各层同样可以问，它们用另一种语言回答。`,
            }
          : { en: "", zh: "" },
    },
    {
      control: {
        name: "source",
        kind: "text",
        when: translator,
        label: { en: "To be translated", zh: "要翻译的句子" },
        value: SOURCE,
      },
    },
    {
      figure: (reader) =>
        translator(reader) && reader.source.trim()
          ? {
              model: translator(reader).name,
              question: "hidden-states",
              text: reader.source,
              params: { k: 5 },
              title: { en: "When does the translation appear?", zh: "译文在哪一层出现？" },
              read: {
                en:
                  "A column for each token that was written, the decoder’s layers from bottom to top: the best " +
                  "guess there, and the rank of the token that was written.",
                zh: "每列是写出的一个词元，解码器的层自下而上：该处的最佳猜测，以及实际写出的词元的名次。",
              },
            }
          : null,
    },
    {
      text: {
        en: `
## Which layers are alike?

Words are one way to read a hidden state, and a demanding one. Another is to ask how two layers *arrange* the tokens:
which are close to each other, which far apart. *Centered kernel alignment* compares two such arrangements, whatever
directions they use. Neighbours are usually alike, and the first and the last layer usually are not.`,
        zh: `
## 哪些层看法相近？

把隐藏状态读成词，是一种比较苛刻的读法。另一种读法是问两层怎样*摆放*这些词元：哪些挨得近，
哪些离得远。*中心核对齐*（CKA）比较两种摆放方式，不管各自用了哪些方向。相邻的层通常相似，第一层与最后一层通常不像。`,
      },
    },
    {
      narrow: true,
      figure: (reader) => ({
        question: "similarity",
        text: [reader.text, reader.second]
          .filter((one) => one?.trim())
          .map((one) => one.replace(/\s*\n\s*/g, " "))
          .concat(CORPUS)
          .join("\n"),
        params: { skip: 1, unbiased: true },
        title: { en: `Which layers of ${reader.model} see alike?`, zh: `${reader.model} 的哪些层看法相近？` },
        read: {
          en:
            "Every layer with every other, on the tokens of your two sentences and eighteen of ours; 0 is the " +
            "embedding. A stronger colour is a closer likeness: 1 is the same up to a rotation, 0 has nothing " +
            "in common. The first token of each sentence is left out, for it is always far from all others.",
          zh:
            "在你的两句话和我们的十八句话的词元上，每一层与其他每一层比较；0 是嵌入。颜色越浓越相似：1 " +
            "表示只差一个旋转，0 表示毫无共同之处。每句的第一个词元不计，因为它总是离其他词元很远。",
        },
      }),
    },
    {
      text: {
        en: `
## The same in Python`,
        zh: `
## 用 Python 做同样的事`,
      },
    },
    {
      code: (reader) => `
import clearhead as ch
from clearhead import explain

pipe = ch.load(${JSON.stringify(nameOrPath(reader))})
text = ${JSON.stringify(reader.text)}

print(explain.hidden_states(pipe, text))
best = [one.token for one in explain.next_token(pipe, text, 2).candidates]
print(explain.hidden_states(pipe, text, positions=-1, candidates=best))
explain.similarity(pipe, [text], unbiased=True).save("similarity.html")

# The last layer is the model's own answer.
found = explain.hidden_states(pipe, text, positions=-1, top_k=1)
print(found.top[-1][0], "=", best[0])`,
    },
  ],
};
