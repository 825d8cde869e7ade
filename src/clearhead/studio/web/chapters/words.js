// Words as vectors: from a number for each word to a row of numbers, what lies near what, and why a row is not enough.

import { skipGram, wordsOf } from "../skip_gram.js";

const TABLE = "glove"; // one row for each word
const READERS = ["bert-mini", "elmo-small"]; // a vector for each use

const SENTENCE = "The queen sat by the river while the king counted his money at the bank.";
const NEAR = "river";
const ANGLES = "water, rain, river, wine, the";
const SUM = "king - man + woman";
const MAP = "violin piano guitar cello, france italy germany spain, bread cheese soup butter";
const ODD = "breakfast, lunch, cereal, dinner";
// A word that means two things, three times each; an empty line stands between the two.
const USES = {
  bank:
    "He put all his money in the bank.\nThe bank raised its interest rates.\nShe works as a clerk at the bank.\n\n" +
    "They sat on the bank of the river.\nThe boat was tied to the bank.\nTrees grew along the bank of the stream.",
  stick:
    "The dog carried a stick in its mouth.\nHe broke the stick over his knee.\nThe old man leaned on his stick.\n\n" +
    "The stamps stick to the paper.\nWet leaves stick to your shoes.\nThese two pages stick together.",
  light:
    "She turned on the light in the kitchen.\nThe light of the sun was bright.\nA light burned in the window.\n\n" +
    "A bag of feathers is light.\nThis box is light enough to carry.\nHe wore a light coat in summer.",
};

/** The words of the reader's sentence, each once. */
const wordsIn = (reader) => [...new Set(wordsOf(reader.text))].join(" ");
const tableWords = ({ model }) =>
  model === TABLE
    ? { en: `\`${model}\`, 50 numbers for each of 40,000 words`, zh: `\`${model}\`，40,000 个词，每个词 50 个数` }
    : { en: `\`${model}\``, zh: `\`${model}\`` };
const here = (reader) => READERS.filter((name) => reader.models.some((model) => model.name === name));
/** Who reads the sentences: the chosen one, else the first that is there. */
const whoReads = (reader) => (here(reader).includes(reader.by) ? reader.by : here(reader)[0]);
const folder = (card) => (card?.source === "folder" ? "  # the folder" : ""); // whose path only its owner knows

export const chapter = {
  slug: "words",
  needs: [TABLE],
  title: { en: "Words as vectors", zh: "词变成向量" },
  about: {
    en:
      "A model cannot read words, only numbers. How a word becomes a row of them, what lies near what, and why one " +
      "row for each word is not enough.",
    zh: "模型读不了词，只读得了数。一个词怎样变成一行数，什么与什么相近，以及为什么每个词一行还不够。",
  },
  input: { text: SENTENCE, model: TABLE, models: (model) => model.family === "word-vectors" },
  parts: [
    {
      text: {
        en: `
A network multiplies and adds. It cannot do that with *river*. So before anything else, a word has to become numbers.

The first idea is a list. Write down all words you know and give each its number. A number alone would say that word
200 is twice word 100, so it is written as a place instead: a long row of zeros with a single one. This is called
**one-hot**. Here are the words of your sentence, each at its place in a long list.`,
        zh: `
网络只会乘和加，对 *river* 这样的词却无从下手。所以第一件事，是把词变成数。

最先想到的办法是列一张表：写下认识的所有词，给每个词一个编号。可单看编号，第 200 个词就成了第 100 个词的两倍，
所以改用位置来表示：一长串零，只有一个一。这叫**独热**（one-hot）。下面是你句子里的词，各在一张长表中自己的位置上。`,
      },
    },
    {
      figure: (reader) => ({
        question: "word-map",
        text: wordsIn(reader),
        state: { show: "one-hot" },
        title: { en: "What is a word before anything is learned?", zh: "学习之前，一个词是什么？" },
      }),
    },
    {
      text: (reader) => ({
        en: `
It works, and it says nothing. Any two words are equally far apart: *king* is no nearer to *queen* than to *money*.
Every square off the diagonal is zero. Whatever a network learns about one word, it has to learn again for all the
others.

## A table of vectors

The second idea: give every word a short row of numbers, and let the numbers be **learned**. The rows together are a
table. This one is ${tableWords(reader).en}. Looking a word up is all there is to it: no sum, no product.`,
        zh: `
这样行得通，却什么也没有说。任意两个词都一样远：*king* 离 *queen* 并不比离 *money* 近。对角线以外的格子全是零。
网络在一个词上学到的东西，到了别的词上又得从头学。

## 一张向量表

第二个办法：给每个词一小行数，而且这些数是**学出来的**。所有的行合起来就是一张表。这里用的是 ${tableWords(reader).zh}。用的时候只是查表：不加，也不乘。`,
      }),
    },
    {
      figure: (reader) => ({
        question: "word-map",
        text: wordsIn(reader),
        state: { show: "numbers" },
        title: { en: "What are the words of your sentence as numbers?", zh: "你句子里的词写成数是什么样？" },
      }),
    },
    {
      text: {
        en: `
Nobody wrote these numbers, and no column has a name. A column or two is strong for nearly every word; look past
those. *King* and *queen* have more strong cells in the same places, and the rows of the small words that every
sentence needs look like one another.

## Where the numbers come from

From company. Words that stand among the same words tend to mean something similar: you can guess a good deal about a
word you have never seen from the words around it. So slide a window over a sentence. The word in the middle is the
*centre*, those beside it are its *context*, and every centre with every word of its context makes a pair.`,
        zh: `
这些数不是谁写进去的，哪一列也没有名字。有一两列几乎对每个词都很深，先不管它们。*king* 和 *queen*
还有别的深色格子在同样的位置，那些每句话都少不了的小词，行与行也很相像。

## 数从哪里来

从身边的词来。常和同样的词待在一起的词，意思往往相近：一个从没见过的词，看看它周围的词，也能猜出不少。
于是让一个窗口在句子上滑动。窗口正中的词是*中心词*，旁边的是它的*上下文*，中心词与上下文里的每个词各成一对。`,
      },
    },
    { custom: skipGram },
    {
      text: {
        en: `
**Skip-gram** (word2vec, 2013) takes the pairs one by one. Each word gets two vectors of random numbers, one as a
centre and one as context. If a pair was found, the two vectors are turned a little towards each other; for pairs made
up at random, a little apart. After some billions of pairs, words with the same company have been pushed to the same
place.

**GloVe** (2014), whose table this is, counts first, as in the grid above, over six billion words; near neighbours
count for more than far ones. Then it looks for vectors whose products give back the logarithms of the counts. One
slides, the other counts, and both learn from the same pairs. Neither is told what anything means.

## Neighbours

If like company gives like numbers, then near rows are words used alike. Type a word, or go on from one of its
neighbours.`,
        zh: `
**Skip-gram**（word2vec，2013 年）一对一对地学。每个词有两个随机的向量，一个当中心词时用，一个当上下文时用。
句子里真有的一对，就把两个向量拉近一点；随机凑出来的一对，就推远一点。几十亿对以后，身边的词相同的词，
就被推到了同一个地方。

**GloVe**（2014 年，这张表就是它的）先数数，就像上面的方格那样，不过数的是六十亿个词，离得近的算得多，离得远的算得少。
然后去找一组向量，使它们的乘积能还原这些次数的对数。一个边滑边学，一个先数后学，学的却是同样的词对。
谁也没有告诉它们任何词的意思。

## 近邻

既然身边的词相像，数就相像，那么离得近的行就是用法相近的词。输入一个词，或点一个近邻接着走。`,
      },
    },
    { control: { name: "near", kind: "text", label: { en: "A word", zh: "一个词" }, value: NEAR } },
    {
      narrow: true,
      figure: (reader) => ({
        question: "neighbours",
        text: reader.near,
        params: { k: 8 },
        hooks: { onPick: ({ word }) => reader.set({ near: word }) },
      }),
    },
    {
      text: {
        en: `
Try *violin*, then *hot*. The neighbours of *hot* include *cold*: the two stand in the same sentences. The table knows
which words are **used** alike, and opposites are.

## Near, by angle

What does near mean for rows of numbers? A row is an arrow from zero to a point. Two arrows, however many numbers they
have, always lie in one plane, so their angle can be drawn as it is. The **cosine** of the angle is the usual measure:
1 for the same direction, 0 for a right angle, −1 for opposite ways.

The plain distance between the two points (Euclid’s) is the obvious other choice. Compare the columns: by distance,
*the* is nearer to *water* than *river* is. *River* points more the way of *water*, but its arrow is long, so its tip
is far away. The length tells something else: *moreover*, which fits into any company, has length 3, *billion* 7.4. It
is the direction that company has shaped, and so neighbours are found by angle.`,
        zh: `
试试 *violin*，再试试 *hot*。*hot* 的近邻里有 *cold*：两个词总出现在同样的句子里。这张表知道哪些词**用法**相近，
反义词正是这样。

## 远近看夹角

对一行行的数来说，什么叫近？一行数就是从零点指向一个点的箭头。两个箭头无论有多少个数，总在同一个平面里，
所以夹角可以如实画出来。通常用夹角的**余弦**来衡量：方向相同是 1，直角是 0，方向相反是 −1。

两点之间的直线距离（欧氏距离）是另一个自然的选择。比一比那几列：论距离，*the* 比 *river* 离 *water* 更近。
*river* 的方向其实更接近 *water*，只是箭头长，箭尖就远了。箭头的长短说的是另一回事：*moreover* 跟什么词都合得来，长度是 3，*billion* 却有 7.4。
身边的词塑造的是方向，所以找近邻看的是夹角。`,
      },
    },
    {
      control: {
        name: "arrows",
        kind: "text",
        label: { en: "Words, the first against the others", zh: "几个词，第一个与其余的比" },
        value: ANGLES,
      },
    },
    {
      figure: (reader) => ({
        question: "word-map",
        text: reader.arrows,
        state: { show: "angles" },
        title: { en: "What is the angle between two words?", zh: "两个词之间的夹角是多少？" },
      }),
    },
    {
      text: {
        en: `
## Sums of words

Directions can be added. Go from *man* to *woman*, and take the same step from *king*: where does it lead? The three
words and the place where the sum leads lie in one plane, so the four corners here are exact. The other words are seen
from above, as on a map: which of them is really nearest, the cosines say.`,
        zh: `
## 词的加减

方向可以相加。从 *man* 走到 *woman*，再从 *king* 出发走同样的一步，会到哪里？三个词和算式通向的地方同在一个平面里，
所以图中的四个角是准确的。其余的词像在地图上那样从上往下看：究竟谁最近，要看余弦。`,
      },
    },
    { control: { name: "sum", kind: "text", label: { en: "A sum of words", zh: "词的加减" }, value: SUM } },
    {
      figure: (reader) => ({ question: "neighbours", text: reader.sum, params: { k: 8 } }),
    },
    {
      text: {
        en: `
Try \`paris - france + italy\`, then \`walking - walked + swam\`. The first works, the second comes near and misses.
On the 16,485 questions of this kind that word2vec’s authors wrote and whose words are all here, \`glove\` is right in
48.7 of a hundred. Remember too that the words of the sum are never allowed as an answer: without that rule, *king*
minus *man* plus *woman* would be *king*.

## A map

A row of 50 numbers is a point in a space of 50 directions. To see many at once, look for the two directions in which
these words differ most and forget the others (**PCA**). Put in words of your own; \`man -> woman\` draws an arrow.`,
        zh: `
试试 \`paris - france + italy\`，再试试 \`walking - walked + swam\`。第一个答对了，第二个差了一点。word2vec 的作者出过一批这样的题，
其中 16,485 道的词这里全都有，\`glove\` 每一百道答对 48.7 道。还要记住，算式里的词从不算作答案：
要是没有这条规矩，*king* 减 *man* 加 *woman* 还是 *king*。

## 一张地图

一行 50 个数，就是有 50 个方向的空间里的一个点。想一眼看到许多词，就找出这些词差别最大的两个方向，其余的忘掉（**PCA**）。
放进你自己的词试试；写 \`man -> woman\` 可以画箭头。`,
      },
    },
    { control: { name: "map", kind: "text", label: { en: "Your words", zh: "你的词" }, value: MAP } },
    {
      figure: (reader) => ({
        question: "word-map",
        text: reader.map,
        state: { show: "learned" },
        title: { en: "Where do your words lie?", zh: "你的词都在哪里？" },
      }),
    },
    {
      text: {
        en: `
Instruments with instruments, countries with countries: nobody sorted them. And what belongs together can tell what
does not. Take the mean of several words, and see which of them points least its way.`,
        zh: `
乐器和乐器在一起，国家和国家在一起，并没有人给它们分类。知道什么是一类，也就知道什么不是。取几个词的平均，
看哪个词的方向与它最不一致。`,
      },
    },
    {
      control: { name: "odd", kind: "text", label: { en: "Several words", zh: "几个词" }, value: ODD },
    },
    {
      narrow: true,
      figure: (reader) => ({
        question: "word-map",
        text: reader.odd,
        state: { show: "odd" },
        title: { en: "Which word does not belong?", zh: "哪个词不是一类的？" },
      }),
    },
    {
      text: {
        en: `
## What a table cannot know

- **Words it has not seen.** Type a made-up word anywhere above: there is no row, and no way to make one.
- **What came later.** These texts end in 2014. What happened to a word since then is not in its row.
- **What it should not.** The rows learned the prejudices of their texts, too: *engineer* lies nearer to *he*, *nurse*
  nearer to *she*.
- **Which meaning.** *Bank* is a house for money and the edge of a river. It has one row.

The last is the one that a larger table does not mend. Whatever the sentence says, the row is the same, and so are its
neighbours. Which of the meanings do they belong to?`,
        zh: `
## 表里查不到的

- **没见过的词。** 在上面任何一处输入一个生造的词：没有它的行，也造不出来。
- **后来的事。** 这些文本到 2014 年为止。此后一个词身上发生了什么，它的行里没有。
- **不该学的。** 文本里的偏见也学进去了：*engineer* 离 *he* 更近，*nurse* 离 *she* 更近。
- **是哪个意思。** *bank* 是银行，也是河岸。它只有一行。

最后这一条，再大的表也补救不了。不管句子怎么说，行还是那一行，近邻还是那些近邻。它们属于哪个意思？`,
      },
    },
    {
      control: {
        name: "example",
        kind: "choice",
        label: { en: "A word with two meanings", zh: "一个有两种意思的词" },
        value: "bank",
        choices: Object.keys(USES).map((word) => [word, word]),
        resets: ["meant", "uses"],
      },
    },
    {
      control: {
        name: "meant",
        kind: "text",
        label: { en: "or one of your own", zh: "或你自己的词" },
        value: ({ example }) => example,
      },
    },
    {
      narrow: true,
      figure: (reader) => ({
        question: "neighbours",
        text: reader.meant,
        params: { k: 8 },
        title: { en: "Which meaning does its one row have?", zh: "它唯一的一行是哪个意思？" },
      }),
    },
    {
      text: (reader) =>
        whoReads(reader)
          ? {
              en: `
## A vector for each use

So do not look the vector up. **Compute** it, from the word and the sentence around it. A model that has learned to
fill gaps or to go on with a text has to know which bank is meant, and its layers hold what it knows. ELMo (2018) did
this with two LSTMs, one reading from each side; BERT does it with [attention](/chapters/attention).

Below, \`${whoReads(reader)}\` reads the word in several sentences. First comes the table’s one point; then every use
has its own. Write sentences of your own, with the word in each. An empty line begins another meaning, and then it is
counted how well the two part.`,
              zh: `
## 每次使用一个向量

那就不查表，而是**算**出来：由这个词和它周围的句子来算。学会了填空、学会了续写的模型，一定得知道说的是哪个 *bank*，
它知道的就在各层里。ELMo（2018 年）用两个 LSTM 来做，从两头各读一遍；BERT 用的是[注意力](/chapters/attention)。

下面，\`${whoReads(reader)}\` 在几个句子里读这个词。先是表里唯一的一个点；然后每次使用各有一个点。
写几个你自己的句子，每句都要有这个词。空一行就开始另一个意思，还会数一数两个意思分得有多开。`,
            }
          : {
              en: `
## A vector for each use

So do not look the vector up. Compute it, from the word and the sentence around it. *No model that does so is here:
bert-mini does, and the figure appears as soon as it is there.*`,
              zh: `
## 每次使用一个向量

那就不查表，而是由这个词和它周围的句子来算。*这里没有这样的模型。bert-mini 可以；有了它，图就会出现在这里。*`,
            },
    },
    {
      control: {
        name: "uses",
        kind: "lines",
        label: {
          en: "Sentences with the word, one in each line; an empty line begins another meaning",
          zh: "含有这个词的句子，每行一句；空一行开始另一个意思",
        },
        value: ({ example }) => USES[example],
        when: (reader) => Boolean(whoReads(reader)),
      },
    },
    {
      control: {
        name: "by",
        kind: "choice",
        label: { en: "Read by", zh: "由谁来读" },
        value: READERS[0],
        choices: READERS.map((name) => [name, name]),
        when: (reader) => here(reader).length > 1,
      },
    },
    {
      control: {
        name: "depth",
        kind: "choice",
        label: { en: "Looked at", zh: "看哪里" },
        value: -1,
        choices: [
          [-1, { en: "after the last layer", zh: "最后一层之后" }],
          [0, { en: "before the first layer", zh: "第一层之前" }],
        ],
        when: (reader) => Boolean(whoReads(reader)),
      },
    },
    {
      figure: (reader) =>
        whoReads(reader)
          ? {
              model: whoReads(reader),
              question: "word-in-context",
              text: reader.uses,
              params: { word: reader.meant, layers: String(reader.depth), table: reader.model },
            }
          : null,
    },
    {
      text: (reader) =>
        whoReads(reader)
          ? {
              en: `
Look before the first layer as well. There the sentence has not been read yet, and the uses differ by little more than
their place in it. After the last layer they have moved apart, and under the figure it is counted how many lie nearest
to one that means the same. It need not be all: \`bert-mini\` is small, and *stick*, a thing or something one does, is
easier for it than *bank*, which is a thing both times.

The table has not gone. Every model of the following chapters begins by looking up a row for each word, or for each
piece of one. What it does after that is the rest of the story.

## The same in Python`,
              zh: `
再看看第一层之前：那里还没有读过句子，各次使用的差别几乎只在于它们在句中的位置。到了最后一层之后，它们就散开了；
图下面数了有多少次使用，离得最近的是意思相同的用法。不一定全都是：\`bert-mini\` 很小，
*stick*（一件东西，或一个动作）对它来说比 *bank*（两次都是东西）容易。

表并没有消失。后面各章的每个模型，都从给每个词（或词的每一块）查出一行开始。查到之后做什么，就是下面的故事了。

## 用 Python 做同样的事`,
            }
          : { en: "## The same in Python", zh: "## 用 Python 做同样的事" },
    },
    {
      code(reader) {
        const name = whoReads(reader);
        const list = (text) => JSON.stringify(text.split(/[\s,，、;；]+|->|→/).filter(Boolean)).replaceAll(",", ", ");
        const lines = reader.uses.split("\n").map((line) => `    ${JSON.stringify(line.trim())},`);
        return `
import clearhead as ch
from clearhead import explain

vectors = ch.load(${JSON.stringify(reader.model ?? TABLE)})${folder(reader.card)}
print(f"{len(vectors):,} words, {vectors.width} numbers each")
print(vectors.vectors(${list(wordsOf(reader.text.toLowerCase()).slice(0, 4).join(" "))}))  # rows of the table
for word, cosine in vectors.nearest(${JSON.stringify(reader.near)}, 5):
    print(f"{cosine:5.2f}  {word}")
print(vectors.similarity("water", "river"), vectors.similarity("water", "the"))
print(vectors.analogy(${JSON.stringify(reader.sum)}, 3))
print(vectors.odd_one_out(${list(reader.odd)}))
explain.word_map(vectors, ${JSON.stringify(reader.map)}).save("map.html")  # one file, works offline
${
  name
    ? `
model = ch.load(${JSON.stringify(name)})
sentences = [
${lines.join("\n")}
]
word = ${JSON.stringify(reader.meant)}
found = explain.word_in_context(model, sentences, word, layers=${reader.depth}, table=vectors)
print(found)
print(found.within, found.across)  # how alike: within a meaning, across meanings`
    : ""
}`;
      },
    },
  ],
};
