// BERT, which reads in both directions: hidden words, two sentences, labels, and vectors for others to use.

import { unpack } from "/static/views/numbers.js";
import { live } from "../live.js";

const SENTENCE = "She opened the [MASK] and read it aloud.";
const NEXT = "The letter was from her father.";
const ELSEWHERE = "The ship lost two of its masts in the storm.";
const REVIEW = "A slow story, but the end is wonderful.";
const MESSAGE = "I still have not received my new card.";

const FAMILIES = ["bert", "roberta", "xlm-roberta", "distilbert", "electra", "albert"];
const isBert = (model) => FAMILIES.includes(model.family);
const guesses = (model) => isBert(model) && ["pretraining", "masked-lm"].includes(model.task);

/** A classifier of the family: the one of this name, else (where any will do) the first there is. */
function classifier(reader, name, any = false) {
  const all = reader.models.filter(
    (model) => isBert(model) && model.task === "sequence-classification" && model.trained,
  );
  return all.find((model) => model.name === name) ?? (any ? all.find((model) => model.name !== "intents") : undefined);
}
/** Who says whether a sentence follows: the chosen model, if it has learned that. */
const follower = (reader) =>
  ["pretraining", "next-sentence"].includes(reader.card?.task)
    ? reader.card
    : reader.models.find((model) => isBert(model) && ["pretraining", "next-sentence"].includes(model.task));
/** The gap, as the model's tokenizer writes it. */
const gap = (reader, text = reader.text) =>
  /roberta/.test(reader.card?.family ?? "") ? text.replaceAll("[MASK]", "<mask>") : text;
const hasGap = (reader) => /\[MASK\]|<mask>/.test(reader.text);
const folder = (card) => (card?.source === "folder" ? "  # the folder" : ""); // whose path only its owner knows
const NOTHING = { en: "", zh: "" };

/** Attention with the gap pinned, in the head in which it looks most at one word farther on. */
const gapLooks = {
  custom(host, page, reader) {
    let figure = null;
    const spec = (now) => ({
      model: now.model,
      question: "attention",
      text: gap(now),
      onAnswer: pin,
      title: { en: "Where does the gap look?", zh: "空缺在看哪里？" },
      read: {
        en:
          "Left: who looks. Right: who is looked at. Go through layers and heads; many rest on [CLS] or [SEP] " +
          "when they find nothing. Click another word to see where it looks.",
        zh:
          "左边是在看的词，右边是被看的词。换层、换头看看；找不到要看的东西时，许多头就停在 [CLS] 或 [SEP] 上。" +
          "点击别的词，可看它在看哪里。",
      },
    });
    const pin = ({ tokens, layers, heads, weights }) => {
      const token = tokens.findIndex(({ text }) => /\[MASK\]|<mask>/.test(text));
      let best = { most: 0 };
      if (token >= 0)
        unpack(weights).forEach((rows, l) =>
          rows.forEach((head, h) =>
            head[token].forEach((weight, k) => {
              if (k > token + 1 && tokens[k].word !== null && weight > best.most)
                best = { most: weight, chosen: { layer: layers[l], heads: [heads[h]] } };
            }),
          ),
        );
      if (token >= 0) figure.choose({ token, key: null, ...best.chosen });
    };
    const update = (now) => {
      host.hidden = !now.model; // the page says so
      if (!now.model) return;
      if (figure) figure.update(spec(now));
      else figure = live(host, spec(now), page);
    };
    update(reader);
    return { update, destroy: () => figure?.destroy() };
  },
};

export const chapter = {
  slug: "bert",
  title: { en: "BERT, which reads both ways", zh: "BERT：左右都读" },
  about: {
    en:
      "Half a Transformer, taught with hidden words and pairs of sentences; then it labels, decides, and lends " +
      "its vectors to others.",
    zh: "半个 Transformer，靠填空和句子配对学会阅读；然后它能分类、能判断，还能把向量借给别人用。",
  },
  input: { text: SENTENCE, second: NEXT, model: "bert-mini", models: guesses },
  parts: [
    {
      text: {
        en: `
A model that only has to read needs no decoder. BERT is a stack of encoder layers and nothing else: all tokens look at
all others, to the left and to the right. It writes no text. It gives every token a vector that has seen the whole
sentence.

But what should it learn from? A model that sees everything cannot be asked for the next word; it stands there already.

## Hidden words

So a few words are hidden. In training, some of the tokens are replaced by \`[MASK]\`, and the model has to say what
stood there. It needs no labels, only text, and there is plenty of that. Hide a word in your sentence by writing
\`[MASK]\` in its place.`,
        zh: `
只需要读的模型用不着解码器。BERT 就是一摞编码器层，别无其他：每个词元都能看到左右两边的所有词元。它不写文章，
只给每个词元一个看过整句话的向量。

可是让它学什么呢？什么都看得见的模型，不能拿“下一个词是什么”来考它，答案就摆在那里。

## 被遮住的词

办法是遮住几个词。训练时把一部分词元换成 \`[MASK]\`，让模型说出原来是什么。这不需要人工标注，只要有文本就行，
而文本多的是。在你的句子里，把想遮住的词写成 \`[MASK]\` 就可以了。`,
      },
    },
    {
      narrow: true,
      figure: (reader) => ({
        question: "prediction",
        text: gap(reader),
        params: { k: 8 },
        title: { en: "Which word is hidden here?", zh: "这里藏着哪个词？" },
        read: {
          en:
            "The likeliest words for each [MASK], with their probabilities. Write “went into the house” after the " +
            "gap: the guess changes, since both sides are read.",
          zh: "每个 [MASK] 最可能的词及其概率。把空缺后面改成 went into the house 试试：猜测会变，因为两边都读。",
        },
      }),
    },
    {
      text: {
        en: `
The gap has no meaning of its own, so all it knows it has from the others. Follow the row of \`[MASK]\` and see where
it looks: forward, too, which a model that writes could never do.`,
        zh: `
空缺本身没有意思，它知道的一切都来自别的词。顺着 \`[MASK]\` 那一行看它在看哪里：它也往后看，写作的模型做不到这一点。`,
      },
    },
    gapLooks,
    {
      text: {
        en: `
The guess does not come all at once. If we stop after each layer and ask for the word, it often changes on the way up.
[A later chapter](/chapters/layers) is about this view.`,
        zh: `
猜测不是一下子出来的。如果在每一层之后都停下来问一次，答案往往一路在变。[后面的一章](/chapters/layers)专门讲这种看法。`,
      },
    },
    {
      narrow: true,
      figure: (reader) =>
        hasGap(reader)
          ? {
              question: "hidden-states",
              text: gap(reader),
              title: { en: "After which layer does the word appear?", zh: "到哪一层之后，这个词才出现？" },
              read: {
                en:
                  "Layers run from bottom to top. Each cell: what the model would say there, and the rank of " +
                  "its final answer; the stronger the colour, the nearer to rank 1.",
                zh: "层自下而上。每格：模型到此会说什么，以及最终答案在这里的名次；颜色越浓，名次越靠前。",
              },
            }
          : null,
    },
    {
      text: {
        en: `
## Two sentences, and a place for the whole

BERT reads one sentence or two. In front stands \`[CLS]\`, a token that means no word; after each sentence stands
\`[SEP]\`. A third vector, beside those of token and position, says which sentence a token belongs to.

\`[CLS]\` is where the whole is gathered. In training it had a task of its own: do these two sentences follow each
other in the text, or was the second taken from elsewhere? The vector of \`[CLS]\` in the last layer has to tell.`,
        zh: `
## 两个句子，一个代表整体的位置

BERT 可以读一句，也可以读两句。最前面是 \`[CLS]\`，它不代表任何词；每句之后是 \`[SEP]\`。除了词元和位置的向量，
还有第三个向量，说明这个词元属于第几句。

整体的信息汇集在 \`[CLS]\` 上。训练时它有自己的任务：第二句真的接在第一句后面，还是从别处拿来的？答案要由最后一层里
\`[CLS]\` 的向量给出。`,
      },
    },
    {
      control: {
        name: "elsewhere",
        kind: "switch",
        label: { en: "Take the second sentence from elsewhere", zh: "第二句换成别处的句子" },
        value: false,
        when: (reader) => Boolean(follower(reader)),
      },
    },
    {
      narrow: true,
      figure(reader) {
        const model = follower(reader);
        return model
          ? {
              model: model.name,
              question: "prediction",
              text: gap(reader),
              second: reader.elsewhere ? ELSEWHERE : reader.second || NEXT,
              params: { k: 3 },
              title: { en: "Does the second sentence follow the first?", zh: "第二句接得上第一句吗？" },
              read: {
                en:
                  "Read off [CLS] alone; the two probabilities sum to 100 %. The gap is filled with both sentences " +
                  "in view: compare the guess with the first figure.",
                zh: "只从 [CLS] 读出，两个概率之和为 100 %。填空时两句都看：与第一幅图的猜测比一比。",
              },
            }
          : null;
      },
    },
    {
      text: (reader) =>
        follower(reader)
          ? NOTHING
          : {
              en:
                "*None of the models here has learned to tell whether a sentence follows. bert-mini has; the " +
                "figure appears as soon as it is there.*",
              zh: "*这里没有学过“下一句”任务的模型。bert-mini 学过；有了它，图就会出现在这里。*",
            },
    },
    {
      text: {
        en: `
## A new task on top

Here is what made BERT famous. The stack has learned to read from plain text. For a new task, one small matrix is put
on top of \`[CLS]\`, with a row for each label, and everything is trained a little longer on examples with labels:
*fine-tuning*. Is a review kind or unkind?`,
        zh: `
## 换一个任务

BERT 成名就在这里。这一摞层已经从普通文本学会了阅读。要做新任务，只在 \`[CLS]\` 上面放一个小矩阵，每个标签一行，
再用带标签的例子把整个模型稍微训练一下，这叫*微调*。一条影评是夸还是贬？`,
      },
    },
    {
      control: {
        name: "review",
        kind: "text",
        label: { en: "A review", zh: "一条影评" },
        value: REVIEW,
        when: (reader) => Boolean(classifier(reader, "sentiment", true)),
      },
    },
    {
      narrow: true,
      figure(reader) {
        const model = classifier(reader, "sentiment", true);
        return model
          ? {
              model: model.name,
              question: "prediction",
              text: reader.review,
              title: { en: "Is it kind?", zh: "是好评吗？" },
              read: {
                en: "The probabilities of the labels sum to 100 %. Write your own review; put a “not” into it.",
                zh: "各标签的概率之和为 100 %。写一条你自己的影评，再加一个 not 试试。",
              },
            }
          : null;
      },
    },
    {
      narrow: true,
      figure(reader) {
        const model = classifier(reader, "sentiment", true);
        return model
          ? {
              model: model.name,
              question: "saliency",
              text: reader.review,
              title: { en: "Which words decided it?", zh: "哪些词起了决定作用？" },
              read: {
                en:
                  "The warmer a word, the more the label depends on it. The chapter “Why did it say that?” says how " +
                  "this is measured.",
                zh: "颜色越暖，标签越依赖这个词。“它为什么这么说？”一章说明这是怎样量出来的。",
              },
            }
          : null;
      },
    },
    {
      text: (reader) =>
        classifier(reader, "sentiment", true)
          ? NOTHING
          : {
              en:
                "*No classifier of BERT’s family is here yet. Start the studio with one, `clearhead studio " +
                "--model FOLDER`, and the figures appear.*",
              zh: "*这里还没有 BERT 家族的分类模型。用 `clearhead studio --model 文件夹` 启动并给出一个，图就会出现。*",
            },
    },
    {
      text: (reader) =>
        !classifier(reader, "intents")
          ? NOTHING
          : {
              en: `
Two labels or many, the recipe is the same. This one sorts what customers write to a bank.`,
              zh: `
两个标签也好，许多标签也好，做法是一样的。下面这个模型给客户写给银行的话归类。`,
            },
    },
    {
      control: {
        name: "message",
        kind: "text",
        label: { en: "A message to a bank", zh: "一条写给银行的消息" },
        value: MESSAGE,
        when: (reader) => Boolean(classifier(reader, "intents")),
      },
    },
    {
      narrow: true,
      figure(reader) {
        const model = classifier(reader, "intents");
        return model
          ? {
              model: model.name,
              question: "prediction",
              text: reader.message,
              title: { en: "What does the customer want?", zh: "客户想要什么？" },
              read: {
                en: "The likeliest label first; all probabilities sum to 100 %.",
                zh: "最可能的标签在前；所有概率之和为 100 %。",
              },
            }
          : null;
      },
    },
    {
      text: {
        en: `
## Vectors for others to use

BERT can also stay as it is. Feed it a sentence, keep the vectors, and give them to something small and quick: they
are *features*. The question is which layer to take. Low layers know words and their neighbours, high ones lean
towards the task they were trained for. So a good choice is often in between, or several layers together.

The figure compares layers by what they see in your sentences. Neighbours see alike; the farther apart two layers are,
the less they share.`,
        zh: `
## 把向量借给别人用

BERT 也可以原样不动。喂给它一个句子，把向量留下来，交给又小又快的模型去用：这就是*特征*。问题是取哪一层。
低层懂得词和邻近的词，高层偏向它训练时的任务。所以常常取中间的层，或者几层并用。

下图比较各层在你的句子里看到的东西。相邻的层看法相近；隔得越远，共同点越少。`,
      },
    },
    {
      narrow: true,
      figure: (reader) => ({
        question: "similarity",
        text: `${gap(reader)}\n${reader.second || NEXT}\n${REVIEW}\n${ELSEWHERE}\n${MESSAGE}`,
        title: { en: "Do two layers see alike?", zh: "两层的看法相似吗？" },
        read: {
          en:
            "Each cell compares two layers over your two sentences and three more (CKA): 1 is the same up to a " +
            "rotation, 0 has nothing in common.",
          zh: "每格用你的两句话外加三句比较两层（CKA）：1 表示只差一个旋转，0 表示毫无共同之处。",
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
      code(reader) {
        const labels = classifier(reader, "sentiment", true);
        const pairs = follower(reader);
        const judge = pairs === reader.card ? "bert" : `ch.load(${JSON.stringify(pairs?.name)})`;
        return `
import clearhead as ch
from clearhead.explain import prediction

bert = ch.load(${JSON.stringify(reader.model ?? "bert-mini")})${folder(reader.card)}
text = ${JSON.stringify(gap(reader, hasGap(reader) ? reader.text : SENTENCE))}
for guess in bert.fill(text)[0]:
    print(f"{guess.probability:6.1%}  {guess.text}")
${
  pairs
    ? `
first, second = "She opened it and read it aloud.", ${JSON.stringify(reader.second || NEXT)}
print(prediction(${judge}, first, second))
`
    : ""
}${
  labels
    ? `
classifier = ch.load(${JSON.stringify(labels.name)})${folder(labels)}
review = ${JSON.stringify(reader.review)}
print(prediction(classifier, review))
`
    : ""
}
texts = ["A dog barks.", "A puppy is barking.", "The bank is closed."]
one, two, three = bert.embed(texts, normalize=True)
print(f"{one @ two:.2f} {one @ three:.2f}")  # how alike they are`;
      },
    },
  ],
};
