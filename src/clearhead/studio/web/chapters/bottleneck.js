// The bottleneck, and attention: a sentence squeezed into one vector; then all states are handed over.

import { el } from "/static/views/dom.js";
import { live } from "../live.js";

const ONE = "rnn-en-de"; // one vector between two networks
const ALL = "rnn-attention-en-de"; // all states, and attention to choose among them
const LATER = "translate-en-de"; // attention alone: the Transformer of 2017

const SENTENCE = "A man in a red shirt is playing the guitar on a busy street.";
const LONG =
  "An old man in a blue coat and a woman with a small dog are sitting on a bench in front of a church while two " +
  "children in yellow jackets play with a ball.";

// The four figures of one step of writing show the same word: what is chosen in one of them is chosen in all.
const figures = new Set();
let chosen = { of: "", state: {} };

function step(n, title) {
  return {
    custom(host, page, reader) {
      let figure = null;
      const spec = (now) => {
        const of = JSON.stringify([now.model, now.text]);
        if (chosen.of !== of) chosen = { of, state: {} };
        return {
          model: now.model,
          question: "alignment-steps",
          text: now.text,
          params: {},
          title,
          state: { step: n, ...chosen.state },
          onState,
        };
      };
      const onState = (_, { token }) => {
        chosen.state = { token };
        for (const one of figures) if (one !== figure) one.choose({ token });
      };
      const update = (now) => {
        host.hidden = !now.model;
        if (!now.model) return;
        if (figure) figure.update(spec(now));
        else {
          figure = live(host, spec(now), page);
          figures.add(figure);
        }
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

/** One sentence through three models, side by side where there is room. */
function sideBySide(host, page, reader) {
  const matrix = { view: "matrix", token: null, key: null };
  const specs = [
    {
      model: ONE,
      question: "saliency",
      params: {},
      state: { view: "matrix", columns: "source" },
      title: { en: "One vector: nothing to look at", zh: "一个向量：无处可看" },
      read: {
        en:
          "There is no attention here. Instead: how much each word of the source mattered for what is written " +
          "(gradient × input, in per cent; the rest of a row is what was written before).",
        zh: "这里没有注意力。改看原文的每个词对写出的词有多大作用（梯度 × 输入，百分比；每行其余的部分属于先前写出的词）。",
      },
    },
    {
      model: ALL,
      question: "attention",
      params: { words: true },
      state: matrix,
      title: { en: "All states, and attention", zh: "全部状态，加上注意力" },
      read: {
        en: "Rows are written, columns are looked at. One set of weights for each step.",
        zh: "行是写出的词，列是被看的词。每一步有一组权重。",
      },
    },
    {
      model: LATER,
      question: "attention",
      params: { side: "cross", words: true },
      state: matrix,
      title: { en: "Attention alone", zh: "只有注意力" },
      read: {
        en: "The Transformer has many heads; shown is the one that aligns best. Change it above the figure.",
        zh: "Transformer 有许多头；这里显示对齐得最好的一个，可在图上方更换。",
      },
    },
  ];
  const places = specs.map(() => el("div", {}));
  host.append(el("div", { class: "st-abreast" }, places));
  const whole = (spec, now) => ({ ...spec, text: now.text });
  const shown = specs.map((spec, n) => live(places[n], whole(spec, reader), page));
  return {
    update: (now) => shown.forEach((one, n) => one.update(whole(specs[n], now))),
    destroy: () => shown.forEach((one) => one.destroy()),
  };
}

/** Where the last word stands, counted from the end: before the end token, and before a full stop. */
const lastWord = (text) => (/\S.*[.!?。！？]\s*$/.test(text) ? -3 : -2);

const title = (n, en, zh) => ({ en: `Step ${n}. ${en}`, zh: `第${"一二三四"[n - 1]}步：${zh}` });

export const chapter = {
  slug: "bottleneck",
  needs: [ONE, ALL, LATER],
  title: { en: "The bottleneck, and attention", zh: "瓶颈，与注意力的诞生" },
  about: {
    en:
      "A recurrent network reads a sentence into one vector, and another writes from it. Then all states were handed " +
      "over, and a network learned where to look.",
    zh: "一个循环网络把句子读进一个向量，另一个网络从它写出译文。后来全部状态都交了出去，网络学会了该往哪里看。",
  },
  input: { text: SENTENCE, model: ALL, models: (one) => /^rnn-attention-/.test(one.name) },
  parts: [
    {
      text: {
        en: `
Before 2017, networks read as we do: one word after the other. A **recurrent** network has a *state*, a row of
numbers. It takes a word and its state, and makes a new state of the two. Then it takes the next word. What it knows of
the sentence is in the state, and nowhere else.

Here is \`${ONE}\` reading your sentence, a column for each word. Every row is one number of the state. Follow one from
left to right: it changes at some words and stays at others.`,
        zh: `
2017 年以前，网络像我们一样读：一个词接一个词。**循环**网络有一个*状态*，就是一行数。它拿到一个词和当前的状态，
由两者算出新的状态，再拿下一个词。它对句子所知的一切都在状态里，别处没有。

下面是 \`${ONE}\` 在读你的句子，每列一个词。每一行是状态中的一个数。从左到右跟着一行看：它在有些词上改变，
在另一些词上保持不变。`,
      },
    },
    {
      figure: () => ({
        model: ONE,
        question: "gates",
        params: { side: "encoder", layer: -1, k: 40 },
        state: { part: "hidden" },
        title: { en: "What does the encoder know after each word?", zh: "读完每个词之后，编码器知道什么？" },
        read: {
          en:
            "Time runs from left to right. Teal is above zero, red below. Shown are the 40 numbers that change most, " +
            "by when they peak. Hover a row to see it on the words; “what is shown” has the gates as well.",
          zh:
            "时间从左到右。青色为正，红色为负。这里是变化最大的 40 个数，按达到峰值的先后排列。悬停一行可在词上查看；" +
            "“显示内容”里还有各个门。",
        },
      }),
    },
    {
      text: {
        en: `
## What to keep, what to forget

How does it decide? The cell used here is an **LSTM**, and its answer is *gates*: numbers between 0 and 1, computed
anew at every word. The *input gate* says how much of the new is let in, the *forget gate* how much of the old stays,
the *output gate* how much of it shows. Each number of the state has its own three gates, so one can hold on to the
subject for a whole sentence while its neighbour starts afresh at every noun.

One step is six lines of arithmetic. This one is for the last word of your sentence, with the numbers themselves.`,
        zh: `
## 留下什么，忘掉什么

它怎样决定？这里用的单元叫 **LSTM**，办法是*门*：0 到 1 之间的数，每读一个词就重新计算。*输入门*决定放进多少新内容，
*遗忘门*决定旧的留下多少，*输出门*决定露出多少。状态里的每个数都有自己的三个门，所以一个数可以整句都记着主语，
旁边的数却在每个名词上重新开始。

一步只是六行算式。下面是最后一个词的这一步，用的是真实的数。`,
      },
    },
    {
      figure: (reader) => ({
        model: ONE,
        question: "walk",
        params: { side: "encoder", layer: -1, numbers: 5, position: lastWord(reader.text) },
        title: { en: "One word enters an LSTM", zh: "一个词进入 LSTM" },
      }),
    },
    {
      text: {
        en: `
## Everything in one vector

The encoder has read the last word. Now the {dec:decoder}, a second network of the same kind, is to write the
translation. In the first systems of 2014 it got one thing: the state that the {enc:encoder} ended with. Five words or
fifty, they had to fit into the same row of numbers.

What is left of the first word by then? Take each word away, one at a time, and see how far the state moves: where the
word was read, and at every step after. The column on the right is all that the decoder ever hears of them. (This
encoder also reads from the end to the beginning, with a second state, and hands over both.)`,
        zh: `
## 一切都挤进一个向量

编码器读完了最后一个词。现在轮到{dec:解码器}，同类的另一个网络，来写译文。在 2014 年最早的系统里，它只得到一样东西：
{enc:编码器}最后的状态。五个词也好，五十个词也好，都得塞进同一行数里。

到那时，第一个词还剩多少？逐个去掉每个词，看状态移动多远：在读到它的那一步，以及之后的每一步。最右边的一列，
就是解码器能听到的全部。（这个编码器还用第二个状态从后往前读一遍，两个状态一起交出去。）`,
      },
    },
    {
      control: {
        name: "direction",
        kind: "choice",
        label: { en: "The encoder reads", zh: "编码器的方向" },
        value: "forward",
        choices: [
          ["forward", { en: "from the beginning", zh: "从前往后" }],
          ["reverse", { en: "from the end", zh: "从后往前" }],
        ],
      },
    },
    {
      figure: (reader) => ({
        model: ONE,
        question: "echo",
        params: { side: "encoder", direction: reader.direction },
        title: { en: "How long does a word stay in the state?", zh: "一个词在状态里留多久？" },
      }),
    },
    {
      text: {
        en: `
The decoder begins with that vector and writes one word after the other, each time from its own state. Let it write,
first your sentence, then a long one. The long one usually starts well. Then it drifts: details change places, things
appear that were never mentioned, the end goes missing. It is not that the network cannot write. It cannot look back.`,
        zh: `
解码器从这个向量开始，一个词接一个词地写，每次都只凭自己的状态。让它写写看，先写你的句子，再写一个长句。
长句往往开头不错，然后就跑偏了：细节换了位置，冒出没提过的东西，结尾不见了。不是它不会写，而是它不能回头看。`,
      },
    },
    { write: (reader) => ({ model: ONE, text: reader.text, options: { max_new_tokens: 80 } }) },
    {
      control: { name: "long", kind: "text", label: { en: "A long sentence", zh: "一个长句" }, value: LONG },
    },
    { write: (reader) => ({ model: ONE, text: reader.long, options: { max_new_tokens: 80 } }) },
    {
      text: (reader) => ({
        en: `
## Hand over all of them

The encoder had a state after *every* word. All but the last were thrown away. Attention keeps them: at each step the
decoder looks at all of them and takes what it needs **now**. It is one idea in four steps, here for one word that
\`${reader.model ?? ALL}\` writes. Choose another word in any of the figures, and the others follow.

## 1. Score

The {dec:decoder}’s state says, in its own way, what is to come next. It is held against each {enc:encoder} state, and
a small formula, learned with the rest, gives one number for each: how well the two go together.`,
        zh: `
## 全部交出去

编码器在*每个*词之后都有一个状态，只是除了最后一个都扔掉了。注意力把它们留下来：解码器每写一步，都看一遍全部状态，
取走**此刻**需要的。一个想法，四步完成。下面是 \`${reader.model ?? ALL}\` 写一个词的过程。在任何一幅图里换一个词，
其余的图会跟着变。

## 1. 打分

{dec:解码器}的状态以自己的方式说明接下来要写什么。把它与{enc:编码器}的每个状态比较，
用一个小公式（与其余部分一起学出来的）给每个状态一个数：两者有多相配。`,
      }),
    },
    step(1, title(1, "Which encoder state fits what comes next?", "编码器的哪个状态与接下来要写的相配？")),
    {
      text: {
        en: `
## 2. Softmax

Scores can be anything. *Softmax* makes shares of them: all above zero, together 100 %. A clear winner takes nearly
everything; where the model hesitates, several words share.`,
        zh: `
## 2. Softmax

得分可以是任何数。*Softmax* 把它们变成份额：全都大于零，合计 100 %。优势明显时，一个词几乎全占；
拿不定主意时，几个词分着占。`,
      },
    },
    step(2, title(2, "How much of each word?", "每个词占多少？")),
    {
      text: {
        en: `
## 3. Context

Now the encoder’s states are added up, each as much as its share says. The sum is the **context**: one vector again, of
the same width as before. But it is made for this word alone, and the next word gets another.`,
        zh: `
## 3. 上下文

把编码器的各个状态按份额相加，得到的和就是**上下文**：又是一个向量，和以前一样宽。但它只为这个词而做，
下一个词会另有一个。`,
      },
    },
    step(3, title(3, "What does the decoder take home?", "解码器取回了什么？")),
    {
      text: {
        en: `
## 4. Word

State and context stand side by side and go through one more matrix. What comes out is compared with every word of the
vocabulary. The word is chosen, read as the next input, and the four steps begin again.`,
        zh: `
## 4. 词

状态与上下文并排，再乘一个矩阵，结果与词表中的每个词比较。选出的词成为下一步的输入，四步重新开始。`,
      },
    },
    step(4, title(4, "How does it become a word?", "怎样变成一个词？")),
    {
      text: {
        en: `
## An alignment that nobody drew

Put the shares of all steps under each other, and you see which word was written from which: an *alignment*. It is not
a diagonal. German likes its verbs and objects in other places than English, and the weights go where the words are.
Nobody told the network which words belong together; it was only ever told the right translation.`,
        zh: `
## 没有人画过的对齐

把每一步的份额上下排在一起，就能看到每个词是看着哪个词写的：这就是*对齐*。它不是一条对角线。
德语的动词和宾语常常不在英语的位置上，权重就跟着词走。没有人告诉过网络哪些词互相对应，它只见过正确的译文。`,
      },
    },
    {
      figure: () => ({
        question: "attention",
        params: { words: true },
        title: { en: "Where does it look to write each word?", zh: "写每个词时，它在看哪里？" },
        read: {
          en:
            "Left: the word that is written and, in grey, the word just read; right: your sentence. The stronger the " +
            "line, the larger the share. Hover a word for the numbers; “matrix” shows all of them at once.",
          zh: "左边是写出的词，灰色的是刚读过的词；右边是你的句子。线越浓，份额越大。悬停可看数值；“矩阵”把它们一次全部显示。",
        },
      }),
    },
    {
      text: {
        en: `
## Three models, one sentence

The first has one vector, the second looks at all states, the third is the Transformer, which threw the recurrent
networks away and kept the attention. What does each of them write, and where does it look?`,
        zh: `
## 三个模型，同一个句子

第一个只有一个向量，第二个看全部状态，第三个是 Transformer：扔掉循环网络，只留下注意力。它们各写出什么，又各看哪里？`,
      },
    },
    { custom: sideBySide },
    {
      text: {
        en: `
## As the sentence grows

One sentence proves nothing. So all three translated the same test sentences, and we sorted them by length. Short ones
fit into a vector. The longer they get, the more is lost, unless the decoder can look back.`,
        zh: `
## 句子变长的时候

一个句子说明不了问题。于是让三个模型翻译同样的测试句子，再按长度分组。短句塞得进一个向量；句子越长，丢得越多，
除非解码器能回头看。`,
      },
    },
    {
      narrow: true,
      figure: () => ({ model: ONE, question: "length-curve", text: "", params: { others: `${ALL}, ${LATER}` } }),
    },
    {
      text: {
        en: `
Attention was built to widen a bottleneck. Three years later it was asked what else was needed, and the answer was
[not much](/chapters/attention).

## The same in Python`,
        zh: `
注意力最初是为了拓宽一个瓶颈。三年后，人们问除了它还需要什么，答案是：[几乎不需要别的](/chapters/attention)。

## 用 Python 做同样的事`,
      },
    },
    {
      code: (reader) => `
import clearhead as ch
from clearhead import explain

text = ${JSON.stringify(reader.text)}
one, looks = ch.load("${ONE}"), ch.load(${JSON.stringify(reader.model ?? ALL)})
for pipe in (one, looks, ch.load("${LATER}")):
    print(f"{pipe.name:>20}  {pipe.translate(text)}")

print(explain.gates(one, text, side="encoder", layer=-1))
print(explain.echo(one, text, direction=${JSON.stringify(reader.direction)}).left)  # in the one vector
aligned = explain.attention(looks, text, words=True)
for word, row in zip(aligned.tokens, aligned.weights[0, 0]):
    print(f"{word.text:>16}  {aligned.keys[row.argmax()].text}")
print(explain.length_curve(["${ONE}", "${ALL}", "${LATER}"]))
explain.alignment_steps(looks, text).save("steps.html")  # one file, works offline`,
    },
  ],
};
