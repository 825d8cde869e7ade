// A model with a library: facts are looked up in a store of passages, which can be read, exchanged and corrected.

import { answers, desk, FIRST, storesOf } from "../library.js";

const MODEL = "retro";
const QUESTION = "What is the capital of Chad?";

const asked = (reader) => ({ store: reader.store, ask: "yes" });

export const chapter = {
  slug: "library",
  needs: [MODEL],
  needsFamily: "retro",
  needsStores: [FIRST],
  title: { en: "A model with a library", zh: "带资料库的模型" },
  about: {
    en:
      "Most models keep what they know in their weights, where nobody can read or correct it. This one looks it up. " +
      "Change a sentence in its library, and the answer changes.",
    zh: "大多数模型把知识存在权重里，没有人能读，也没有人能改。这个模型则去查。改动资料库里的一句话，答案就跟着变。",
  },
  input: { text: QUESTION, model: MODEL, models: (one) => one.family === "retro" },
  parts: [
    {
      text: {
        en: `
A large language model knows the capital of Chad because it has read it somewhere, and some of its numbers have moved a
little. Which ones, nobody can say. If the fact is wrong or out of date, there is no page to correct: one has to train
again.

There is another way. Let the weights hold the *language*, and keep the *facts* in a library that a person can read.
When the model needs one, it looks it up. A design of 2021 does this: **RETRO**, the retrieval-enhanced transformer.
Below, one answers your question: with each library that is here, and with none.`,
        zh: `
大语言模型知道乍得的首都，是因为它在什么地方读到过，于是它的一些数动了一点点。是哪些数，没有人说得出。
如果这件事记错了、过时了，也没有哪一页可以改：只能重新训练。

还有另一种办法：权重里只放*语言*，*事实*放在人也能读的资料库里，模型需要时去查。2021 年的一种设计就是这样：
**RETRO**，检索增强的 Transformer。下面由它来回答你的问题：用这里的每个资料库各答一次，再不用资料库答一次。`,
      },
    },
    { custom: answers },
    {
      text: {
        en: `
It is a small model, and it was trained so that it *cannot* know: in its training texts the facts were shuffled again
and again, and only the passages beside them told the right one. So it learned to read them. It can be wrong, as any
model can. But here one can see why.

How does a passage get into an answer? In four steps. Choose the library that is used from here on.`,
        zh: `
这是一个小模型，而且训练时就让它*无从*知道：训练文本里的事实一再被打乱，只有旁边的段落说的是对的。
于是它学会了去读段落。它和别的模型一样会出错，但在这里看得出为什么。

一个段落怎样进入答案？分四步。先选从这里起要用的资料库。`,
      },
    },
    {
      control: {
        name: "store",
        kind: "choice",
        label: { en: "The library", zh: "资料库" },
        value: (reader) => storesOf(reader)[0],
        choices: (reader) => storesOf(reader).map((name) => [name, name]),
      },
    },
    {
      text: {
        en: `
## 1. The search

The library is cut into short passages. A frozen encoder has turned each into a vector, {k:a key}. It now does the same
with the question, {q:the query}. The passages whose vectors point the same way are taken down from the shelf. No word
has to match: what counts is whether the two are about the same thing.

A plane cannot show hundreds of directions, so trust the list rather than the map. The first two are what the
model gets.`,
        zh: `
## 1. 查找

资料库切成了短小的段落。一个冻结的编码器已把每个段落变成一个向量，也就是{k:键}。现在它对问题也这样做，得到{q:查询}。
向量方向相近的段落就从架上取下来。不需要有相同的词：要紧的是两者说的是不是同一件事。

平面画不出几百个方向，所以列表比地图可信。头两个段落就是交给模型的。`,
      },
    },
    {
      figure: (reader) => ({
        question: "store-map",
        params: asked(reader),
        title: { en: "Which passages lie near the question?", zh: "哪些段落离问题近？" },
      }),
    },
    {
      text: {
        en: `
## 2. The encoder

A passage is more than the sentence that is needed. A second, small network, the {enc:encoder}, reads it from both
sides, and while it reads it looks at the question. So the same passage reads differently for another question: here the
words that matter can be marked before the answer begins.

Hover a word of a passage and see which words of the question it looks at. The grey mark at the beginning stands for
tokens that say nothing; why they are there is the next step.`,
        zh: `
## 2. 编码器

段落里不只有需要的那句话。另一个小网络，即{enc:编码器}，从两个方向读它，边读边看问题。
所以同一个段落，换一个问题读法就不同：在答案开始之前，要紧的词已经可以被标出来。

悬停段落中的一个词，看它在看问题里的哪些词。开头的灰色标记代表一些没有内容的词元；它们为什么在那里，下一步就讲。`,
      },
    },
    {
      figure: (reader) => ({
        question: "passages",
        params: asked(reader),
        state: { part: "encoder" },
        hooks: { part: true },
      }),
    },
    {
      text: {
        en: `
## 3. Chunked attention

The {dec:decoder} writes as any GPT does, one token after the other. It reads its own text in **chunks** of 64 tokens.
When a chunk is whole, it is searched with, and what was found may be looked at from its last token on, while the next
chunk is written. Then that one is searched with in turn. A long text so gets new passages every 64 tokens.

A question is shorter than a chunk. So it is filled up in front with tokens that say nothing until it ends where the
chunk ends. Then the very first word of the answer can look.

In some layers there is a second attention for that: the word to be written asks, the words of the passages answer. This
is the moment at which a fact moves from the library into the text. Choose a word of the answer.`,
        zh: `
## 3. 分块注意力

{dec:解码器}和别的 GPT 一样，一个词元接一个词元地写。它把自己的文本分成 64 个词元一**块**。一块写完，就拿它去查；
查到的段落从这块的最后一个词元起就可以看，供写下一块用。下一块写完再查。所以长文本每 64 个词元就换一次段落。

问题比一块短，于是在前面用没有内容的词元填满，让它恰好在块末结束。这样答案的第一个词就已经能看段落了。

为此，有些层里有第二个注意力：要写的词来问，段落里的词来答。事实就在这一刻从资料库进入文本。选答案中的一个词看看。`,
      },
    },
    {
      figure: (reader) => ({
        question: "passages",
        params: asked(reader),
        state: { part: "attention" },
        hooks: { part: true },
      }),
    },
    {
      text: {
        en: `
## 4. The answer

Looking is not yet using. A model may look at a passage and still say what it would have said anyway; then the library
is only for show. There is a plain check. Take a passage away, let the model write the same words, and see how likely
they are now. Then take all away. Then give it random ones.

If nothing changes, the library does not matter.`,
        zh: `
## 4. 答案

看了不等于用了。模型可能看了段落，说的却还是本来要说的话；那样资料库就只是摆设。有个简单的检验：拿走一个段落，
让模型写同样的词，看它们现在有多可能。再全部拿走，再换成随机的段落。

如果什么都不变，资料库就不起作用。`,
      },
    },
    { figure: (reader) => ({ question: "retrieval-ablation", params: asked(reader) }) },
    {
      text: {
        en: `
## Write in the library

Now the other way round. These are the passages that were found. Change one: another capital, another year, a country
that does not exist. Your words stand in its place for this page alone, get a vector of their own, and are searched with
all the others; the library on the disk stays as it is. Nothing is trained.`,
        zh: `
## 在资料库里写字

现在反过来。这些就是查到的段落。改一个：换个首都，换个年份，写个不存在的国家。你写的话只在这个页面里取代原文，
会有自己的向量，和别的段落一起被查找；磁盘上的资料库不变。没有任何训练。`,
      },
    },
    { custom: desk },
    {
      text: {
        en: `
If you rewrite so much that the passage no longer is about the question, it is not found any more, and another takes its
place. That is what a librarian would do, too.

A library has its price: every chunk costs a search, and an answer is only as good as what was found. But it can be
read, and it can be corrected. [What the model alone would have looked at](/chapters/why) is another story.

## The same in Python`,
        zh: `
如果改得太多，段落不再与问题有关，它就查不到了，会有别的段落来顶替。换作图书管理员，也会这样做。

资料库有代价：每一块都要查一次，答案也只能和查到的内容一样好。但它可以读，也可以改。[模型自己会看哪里](/chapters/why)，
那是另一个故事。

## 用 Python 做同样的事`,
      },
    },
    {
      code: (reader) => `
import clearhead as ch
from clearhead import explain

question = ${JSON.stringify(reader.text)}
retro = ch.load(${JSON.stringify(reader.model ?? MODEL)}, store=${JSON.stringify(reader.store ?? FIRST)})
print(explain.store_map(retro, question))  # the search
found = explain.passages(retro, question, ask=True)
for passage in found.passages:
    print(passage.score, passage.document, passage.text)
print(found.answer, found.share(found.passages[0]))  # how much of the attention went to the first, for each token
print(explain.retrieval_ablation(retro, question, ask=True).without.gain)  # bits that the store is worth
found.save("library.html")  # one file, works offline

store = retro.store  # a passage that says something else, for whoever holds this store
first = found.passages[0]
edit = ch.retrieval.PassageEdit(first.document, first.position, first.text.replace(found.answer, "Timbuktu"))
print(explain.passages(retro, question, store=ch.retrieval.EditedStore(store, [edit]), ask=True).answer)`,
    },
  ],
};
