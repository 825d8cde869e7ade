// Attention in six steps, each with the numbers that a trained model computed for the reader's sentence.

import { live } from "../live.js";

const SENTENCE = "A girl in a blue dress is reading a book to her little brother.";
// scores that are products alone
const FAMILIES = ["transformer", "bert", "roberta", "distilbert", "electra", "albert", "bart", "marian"];

const twoStacks = (reader) => /^seq2seq/.test(reader.card?.task ?? "");
/** An encoder–decoder has three attentions; here it is that of the encoder. */
const side = (reader) => (twoStacks(reader) ? { side: "encoder" } : {});

// The six figures show one token and one head: what is chosen in one of them is chosen in all.
const figures = new Set();
let chosen = { of: "", state: {} };

function step(n, title) {
  return {
    custom(host, page, reader) {
      let figure = null;
      const spec = (now) => {
        const of = JSON.stringify([now.model, now.text, now.layer]);
        if (chosen.of !== of) chosen = { of, state: {} };
        return {
          model: now.model,
          question: "attention-steps",
          text: now.text,
          params: { layer: now.layer, ...side(now) },
          title,
          state: { step: n, ...chosen.state },
          onState,
        };
      };
      const onState = (_, { head, token }) => {
        chosen.state = { head, token };
        for (const one of figures) if (one !== figure) one.choose({ head, token });
      };
      const update = (now) => {
        host.hidden = !now.model; // the page says so
        if (!now.model) return;
        if (figure) {
          figure.update(spec(now));
          return;
        }
        figure = live(host, spec(now), page);
        figures.add(figure);
      };
      update(reader);
      return {
        update,
        destroy() {
          figures.delete(figure);
          figure?.destroy();
        },
      };
    },
  };
}

const title = (n, en, zh) => ({ en: `Step ${n}. ${en}`, zh: `第${"一二三四五六"[n - 1]}步：${zh}` });

export const chapter = {
  slug: "attention",
  title: { en: "Attention in six steps", zh: "六步看懂注意力" },
  about: {
    en:
      "How a word finds the other words it needs: three vectors, a product, a scale, a softmax, a sum, and " +
      "several heads at once.",
    zh: "一个词怎样找到它需要的其他词：三个向量、一次点积、一次缩放、一次 softmax、一次求和，再由多个头同时来做。",
  },
  input: { text: SENTENCE, model: "translate-en-de", models: (model) => FAMILIES.includes(model.family) },
  parts: [
    {
      text: {
        en: `
A word alone says little. Take *blue*: is it the sky, a mood, a dress? The sentence knows, and the word has to find
out. In a Transformer it does so by **attention**: every token looks at every other one, decides how much each of them
matters, and takes something from those that do.

A model that has learned its task, say to translate, has learned along the way where to look. Nobody told it. Here is
one layer of it, reading your sentence. Change the sentence above and everything on this page is computed anew.`,
        zh: `
单独一个词说明不了什么。比如 *blue*：是天空，是心情，还是裙子？答案在句子里，这个词得自己去找。Transformer
找答案的办法就是**注意力**：每个词元都看一看其他所有词元，判断各自有多重要，再从重要的那些里取来一些信息。

模型学会了自己的任务（比如翻译），也就顺带学会了该往哪里看，并没有人教过它。下面是它的一层正在读你的句子。
修改上面的句子，本页的一切都会重新计算。（模型读的是英文，所以例句用英文。）`,
      },
    },
    {
      control: {
        name: "layer",
        kind: "choice",
        label: { en: "Which layer to look at", zh: "看哪一层" },
        value: 0,
        choices: [
          [0, { en: "the first", zh: "第一层" }],
          [-1, { en: "the last", zh: "最后一层" }],
        ],
      },
    },
    {
      figure: (reader) => ({
        question: "attention",
        params: { layers: String(reader.layer), ...side(reader) },
        title: { en: "Which words does a word look at?", zh: "一个词在看哪些词？" },
        read: {
          en:
            "Left: who looks. Right: who is looked at; the stronger the line, the more. Hover a word to see its " +
            "shares, click to keep them, and try the other heads.",
          zh:
            "左边是在看的词，右边是被看的词；线越浓，看得越多。悬停一个词可看各自的份额，点击可固定，" +
            "也可以换其他的头。",
        },
      }),
    },
    {
      text: {
        en: `
The lines are the result. The rest of this chapter is how they come about: six steps, each of them a line of
arithmetic. We follow one token and one head. Both can be changed in any figure, and the others follow.

## 1. Three vectors for every token

A token enters the layer as a vector, a long row of numbers. Three matrices, learned in training, turn it into three
shorter ones:

- the {q:query}: what the token is looking for,
- the {k:key}: what it can be found by,
- the {v:value}: what it hands over to whoever finds it.

It is a little like a library. You come with a question, the books have labels on their spines, and what you take home
is what stands inside. Nobody decided what the numbers mean; training found numbers that work.`,
        zh: `
这些线是结果。本章余下的部分说明它们从何而来：一共六步，每一步只是一行算式。我们跟着一个词元、一个头走。
在任何一幅图里都可以换，其余的图会跟着变。

## 1. 每个词元三个向量

词元进入这一层时是一个向量，也就是一长串数。训练得到的三个矩阵把它变成三个短一些的向量：

- {q:查询}（query）：这个词元在找什么；
- {k:键}（key）：别人凭什么找到它；
- {v:值}（value）：找到它的人能从它那里拿走什么。

有点像图书馆：你带着问题来，书脊上贴着标签，带回家的是书里的内容。没有人规定过这些数的含义，训练只是找到了管用的数。`,
      },
    },
    step(1, title(1, "What are a token’s query, key and value?", "一个词元的查询、键、值是什么？")),
    {
      text: {
        en: `
## 2. The query meets every key

Does a {k:key} answer the {q:query}? Multiply the two, number by number, and add up the products: the *dot product*.
Where both are large with the same sign, the sum grows. Where they disagree, it shrinks. One number is left for each
token, and it may be below zero.`,
        zh: `
## 2. 查询与每个键相遇

某个{k:键}是否回应了{q:查询}？把两者逐项相乘，再把乘积加起来，这就是*点积*。两边数值都大且同号，和就变大；彼此相反，
和就变小。最后每个词元只剩一个数，可以是负数。`,
      },
    },
    step(2, title(2, "Which keys match the query?", "哪些键与查询匹配？")),
    {
      text: {
        en: `
## 3. Scale

A sum of many products strays far from zero, and the farther, the longer the vectors are. The next step would then
give everything to one token and leave nothing to learn from. So the sums are divided by the square root of the
vectors’ length. What comes out is called the **score**.

In a decoder, this is also where tokens that come later are hidden: their scores are set aside before the next step.
An encoder may look both ways.`,
        zh: `
## 3. 缩放

许多乘积之和容易离零很远，向量越长越是如此。这样一来，下一步会把全部份额都给一个词元，训练时也就学不到东西。
所以要把和除以向量长度的平方根。得到的数叫**得分**。

在解码器里，还没出现的词元也是在这里被遮住的：它们的得分不参与下一步。编码器则前后都可以看。`,
      },
    },
    step(3, title(3, "What does scaling change?", "缩放改变了什么？")),
    {
      text: {
        en: `
## 4. Softmax

Scores become shares. Raise *e* to each of them, which makes all of them positive and large ones much larger, then
divide by their sum. The results are the **weights**: none is below zero, and together they are one. These are the
lines of the first figure.`,
        zh: `
## 4. softmax

得分要变成份额。先对每个得分取 *e* 的幂，这样全都为正，大的变得更大；再除以总和。得到的就是**权重**：没有负数，
加起来等于一。第一幅图里的线画的就是它们。`,
      },
    },
    step(4, title(4, "How much does each token get?", "每个词元分到多少？")),
    {
      text: {
        en: `
## 5. The weighted sum

Now the {v:values} have their turn. Each is multiplied by its weight, and all are added up. A token with a weight near
zero contributes next to nothing; one with a large weight is nearly copied. The sum is this head’s answer: what the
sentence had to say to the token’s question.`,
        zh: `
## 5. 加权求和

现在轮到{v:值}。每个值乘以自己的权重，再全部相加。权重接近零的词元几乎没有贡献；权重很大的，几乎原样抄过来。
这个和就是这个头的答案：对于词元的提问，句子作出的回答。`,
      },
    },
    step(5, title(5, "What does the token get back?", "词元得到了什么？")),
    {
      text: {
        en: `
## 6. Many heads, joined

One look is not enough. A word may need its noun, its verb and its neighbour at the same time. So a layer has several
**heads**, each with matrices of its own, all doing steps one to five side by side. Their answers are put next to each
other, and one more matrix mixes them into a vector of the old length.

That vector is not the token’s new meaning. It is **added** to what the token already was: the *residual* connection.
A layer only ever writes a remark in the margin.`,
        zh: `
## 6. 多个头，合在一起

只看一次不够。一个词可能同时需要它的名词、它的动词和旁边的词。所以一层有好几个**头**，各有自己的矩阵，
同时各做一遍前五步。它们的答案首尾相接，再由一个矩阵混合成原来长度的向量。

这个向量并不取代词元原来的意思，而是**加**到上面去，这叫*残差*连接。每一层只是在页边添一条批注。`,
      },
    },
    step(6, title(6, "What do the heads say together?", "所有的头合起来说了什么？")),
    {
      text: {
        en: `
## All at once

Nothing here happens token by token. All queries stand in one matrix, all keys in another, and one product gives every
score at once. In the notation of the 2017 paper: softmax({q:Q} · {k:K}ᵀ / √d) · {v:V}. You have now seen each of its
letters.

Every layer does it again, on what the layer below has written. Here are all of them. Some heads look at the word
before, some at the end of the sentence, some from an adjective to its noun. Pick a tile to open it.`,
        zh: `
## 一次算完

其实这些并不是逐个词元算的。所有查询排成一个矩阵，所有键排成另一个，一次矩阵乘法就得到全部得分。用 2017 年论文的写法：
softmax({q:Q} · {k:K}ᵀ / √d) · {v:V}。式中的每个字母你都已经见过了。

每一层都会在下面一层的结果上再做一遍。下面是所有的层和头。有的头看前一个词，有的看句末，有的从形容词看向它的名词。
点开任意一格看看。`,
      },
    },
    {
      figure: (reader) => ({
        question: "attention",
        params: side(reader),
        state: { view: "all" },
        title: { en: "What do all heads of all layers do?", zh: "每一层的每个头都在做什么？" },
        read: {
          en:
            "One tile for each head, layers from bottom to top: a row looks, a column is looked at. Sort the " +
            "heads to find those with a habit; click a tile to open it.",
          zh: "每格是一个头，层自下而上：行在看，列被看。可以按习性给头排序；点击一格即可打开。",
        },
      }),
    },
    {
      text: {
        en: `
## The same in Python

The six steps in NumPy, with the vectors of the real model. The last line compares them with what the model itself
computed.`,
        zh: `
## 用 Python 做同样的事

用真实模型的向量，在 NumPy 里走完这六步。最后一行与模型自己算出的结果比较。`,
      },
    },
    {
      code: (reader) => {
        const [head, token] = reader.text === SENTENCE && reader.model === "translate-en-de" ? [2, 4] : [0, 1];
        const comment = reader.card?.source === "folder" ? "  # the folder" : "";
        return `
import clearhead as ch
import numpy as np
from clearhead.explain import attention_steps

pipe = ch.load(${JSON.stringify(reader.model ?? "translate-en-de")})${comment}
text = ${JSON.stringify(reader.text)}
steps = attention_steps(pipe, text, layer=${reader.layer}${twoStacks(reader) ? ', side="encoder"' : ""})

head, token = ${head}, ${token}
query = steps.query[head, token]                        # 1
keys, values = steps.key[head], steps.value[head]
products = keys @ query                                 # 2
scores = products * steps.scale                         # 3
weights = np.exp(scores - scores.max())
weights /= weights.sum()                                # 4
answer = weights @ values                               # 5
joined = np.concatenate(steps.answers[:, token])        # 6

for key, weight in zip(steps.keys, weights):
    print(f"{key.text:>12} {weight:6.1%}")
print("difference:", abs(answer - steps.answers[head, token]).max())`;
      },
    },
  ],
};
