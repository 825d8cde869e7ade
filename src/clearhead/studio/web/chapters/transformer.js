// The Transformer of 2017 at work: it reads a sentence, writes its translation, and every part can be
// watched.

const SENTENCE = "A girl in a blue dress is reading a book to her little brother.";
// what translate-en-de has written when the order of the words begins to differ
const WRITTEN = "Ein Mädchen in einem blauen Kleid";

const begun = (reader) =>
  reader.model === "translate-en-de" && reader.text === SENTENCE
    ? reader.begun
    : reader.begun === WRITTEN
      ? ""
      : reader.begun;
const millions = (reader) => (reader.card?.parameters ? (reader.card.parameters / 1e6).toFixed(1) : null);
const comment = (reader) => (reader.card?.source === "folder" ? "  # the folder" : "");

export const chapter = {
  slug: "transformer",
  title: { en: "The Transformer, translating", zh: "Transformer 怎样翻译" },
  about: {
    en: "An encoder reads, a decoder writes, and between them attention finds out which word belongs to which.",
    zh: "编码器负责读，解码器负责写，注意力在两者之间找出哪个词对应哪个词。",
  },
  input: { text: SENTENCE, model: "translate-en-de", models: (model) => /^seq2seq/.test(model.task ?? "") },
  parts: [
    {
      text: (reader) => ({
        en: `
The Transformer was built for one task: read a sentence in one language, write it in another. It has two halves. The
{enc:encoder} reads the whole sentence at once and gives every token a vector that knows its neighbours. The
{dec:decoder} writes the translation, one token after the other, and looks at what the encoder has read each time.

The model here is that design on a small
scale${millions(reader) ? `, with ${millions(reader)} million parameters` : ""}. It has learned from captions of
photographs: people, dogs, streets. Give it a sentence of that kind. Let it write first.`,
        zh: `
Transformer 最初只为一件事而设计：读一种语言的句子，写出另一种语言。它有两半。{enc:编码器}一次读完整个句子，
给每个词元一个了解上下文的向量。{dec:解码器}一个词元接一个词元地写出译文，每写一个都要回头看编码器读到的内容。

这里的模型是这种设计的缩小版${millions(reader) ? `，有 ${(reader.card.parameters / 1e4).toFixed(0)} 万个参数` : ""}。
它只学过照片的英文说明：人、狗、街道。请给它这一类的句子。（想看它译成中文，可以在上面换成 translate-en-zh，
并写一句简短的日常英语。）先让它写一遍。`,
      }),
    },
    { write: (reader) => ({ text: reader.text, options: { max_new_tokens: 60 } }) },
    {
      text: {
        en: `
## Words become vectors, and get a place

The sentence is cut into tokens, and each token is looked up in a table: one row of numbers for every entry of the
vocabulary. But attention treats its tokens as a bag. It would read *dog bites man* and *man bites dog* alike. So each
place in the sentence has a vector of its own, which is added to the token’s.

In 2017 these were not learned but computed: waves, fast on one side and slow on the other, like the hands of many
clocks. No two places look the same, and neighbours look alike.`,
        zh: `
## 词变成向量，还要有位置

句子先被切成词元，每个词元到一张表里查到自己的一行数，词表里每个条目一行。可是注意力把词元当成一袋东西，
分不出“狗咬人”和“人咬狗”。所以句子里的每个位置也有自己的向量，加到词元的向量上。

2017 年的做法不是学出来的，而是算出来的：一组波，一边快、一边慢，好像许多钟表的指针。没有两个位置完全一样，
相邻的位置又彼此相像。`,
      },
    },
    {
      figure: () => ({
        question: "positions",
        text: "",
        params: { length: 48 },
        title: { en: "How does the model know the order?", zh: "模型怎样知道词的顺序？" },
        read: {
          en:
            "Each row is the vector of one place, from the first token down. On the right: how alike two places " +
            "are, which fades with their distance.",
          zh: "每一行是一个位置的向量，自上而下。右边是两个位置有多相像：离得越远，越不像。",
        },
      }),
    },
    {
      text: {
        en: `
## The encoder reads

Each layer of the {enc:encoder} has two parts. First [attention](/chapters/attention), in which tokens take from each
other. Then a *feed-forward network*, which every token goes through alone: widened, bent, narrowed. Both add to what
was there before (the *residual* connection), and a normalisation keeps the numbers at a known size. Layer upon layer,
that is all.

The encoder may look both ways: the whole sentence is there before anything is written.`,
        zh: `
## 编码器：读

{enc:编码器}的每一层有两部分。先是[注意力](/chapters/attention)，词元之间互相取用信息。再是*前馈网络*，
每个词元单独通过：展宽、经过非线性函数、再收窄。两部分的结果都加到原来的向量上（*残差*连接），
再用归一化让数值保持在合适的大小。一层叠一层，仅此而已。

编码器前后都可以看：动笔之前，整个句子已经在那里了。`,
      },
    },
    {
      figure: () => ({
        question: "attention",
        params: { side: "encoder" },
        title: { en: "Where does the encoder look while it reads?", zh: "编码器在读的时候看哪里？" },
        read: {
          en: "Both sides are your sentence. Hover a word to see where it looks; change layer and head above.",
          zh: "左右两边都是你的句子。悬停一个词，看它在看哪里；上方可换层和头。",
        },
      }),
    },
    {
      text: {
        en: `
## The decoder looks back at itself

The {dec:decoder} has the same two parts, with one rule added: a token may look only at those before it. When the
first word is chosen, the second does not exist yet. In training, where the whole translation is known, the rule is
kept by a mask, so that nobody can copy the answer.`,
        zh: `
## 解码器：只看已写的部分

{dec:解码器}也有这两部分，但多一条规则：词元只能看自己和前面的词元。选第一个词的时候，第二个词还不存在。
训练时整句译文是已知的，就靠掩码来守住这条规则，免得抄答案。`,
      },
    },
    {
      figure: () => ({
        question: "attention",
        params: { side: "decoder" },
        state: { view: "matrix" },
        title: { en: "What does the translation see of itself?", zh: "译文能看到自己的哪些部分？" },
        read: {
          en: "A row looks at the columns. Everything above the diagonal is empty: the future is hidden.",
          zh: "每一行看向各列。对角线以上全空：后面的词被遮住了。",
        },
      }),
    },
    {
      text: {
        en: `
## Where the two halves meet

Between its two parts, each layer of the decoder has a third: **cross-attention**. The {q:queries} come from the
translation, the {k:keys} and {v:values} from the encoder. It is the only window from one language to the other.

Follow the strongest links and you have an *alignment*: which word was translated from which. Nobody drew it. When a
word is chosen, it is not there yet: the decoder has read as far as the word before and looks for what comes **next**.
So each row has two names, the word it writes and, in grey, the word just read. Where the two languages order their
words differently, the links cross.`,
        zh: `
## 两半在这里相遇

解码器的每一层在那两部分之间还有第三部分：**交叉注意力**。{q:查询}来自译文，{k:键}和{v:值}来自编码器。两种语言之间，
只有这一扇窗。

顺着最强的连线看，就得到了*对齐*：译文的哪个词来自原文的哪个词。没有人标注过它。选一个词的时候，它还不在那里：
解码器只读到前一个词，找的是**下一个**词。所以每一行有两个名字：正在写的词，和旁边灰色的、刚读过的词。
两种语言语序不同的地方，线就会交叉。`,
      },
    },
    {
      figure: () => ({
        question: "attention",
        params: { side: "cross", words: true },
        title: { en: "Where does the decoder look to write each word?", zh: "解码器看着哪个词来写每个词？" },
        read: {
          en:
            "Left: the word being written and, in grey, the word just read; the last row ends the sentence. Right: " +
            "your sentence. Hover a word to see what it was written from. The head shown is the one that aligns " +
            "best; not every head does, try them.",
          zh:
            "左边是正在写的词，灰色的是刚读过的词，最后一行结束句子；右边是你的句子。悬停一个词，看它由哪个词写成。" +
            "这里显示的是对齐得最好的头；并非每个头都在对齐，换着看看。",
        },
      }),
    },
    {
      text: {
        en: `
## From a vector to a word

At the top of the decoder one vector is left. It is multiplied with the vector of every token in the vocabulary, and
softmax turns the results into probabilities. Type what has been written so far, in the language of the translation,
and see what would come next.`,
        zh: `
## 从向量到词

解码器顶端只剩一个向量。它与词表中每个词元的向量相乘，再由 softmax 变成概率。在下面输入已经写出的译文，
看看接下来会是什么。`,
      },
    },
    { control: { name: "begun", kind: "text", label: { en: "Written so far", zh: "已经写出" }, value: WRITTEN } },
    {
      narrow: true,
      figure: (reader) => ({
        question: "next-token",
        params: { target: begun(reader), k: 8 },
        title: { en: "What would the model write next?", zh: "模型接下来会写什么？" },
        read: {
          en: "The likeliest tokens with their probabilities. A flat list means the model hesitates.",
          zh: "最可能的词元及其概率。各项相差不大，说明模型拿不定主意。",
        },
      }),
    },
    {
      text: {
        en: `
## Greedy, or with beams

The simplest way to write is **greedy**: take the likeliest token, add it, ask again. But a good beginning can lead
into a corner, and what is written cannot be taken back.

**Beam search** keeps several beginnings alive. At each step all of them are continued in every possible way, and only
the best few stay. In the end the translations are compared as wholes. Set the number of beams to one and you have
greedy decoding again.`,
        zh: `
## 贪心，还是束搜索

最简单的写法是**贪心**：取概率最大的词元，接上去，再问下一个。但好的开头也可能走进死胡同，而写下的字不能收回。

**束搜索**同时保留几个开头。每一步把它们各自按所有可能续写一遍，只留下最好的几个；最后把完整的译文放在一起比较。
把束宽设为一，就又是贪心解码。`,
      },
    },
    {
      control: { name: "beams", kind: "range", label: { en: "Beams", zh: "束宽" }, value: 3, low: 1, high: 6, step: 1 },
    },
    {
      figure: (reader) => ({
        question: "beams",
        params: { num_beams: reader.beams, max_new_tokens: 32 },
        title: { en: "How is the translation searched?", zh: "译文是怎样搜索出来的？" },
        read: {
          en:
            "Time runs from left to right. Each column holds the candidates of one step; grey ones were " +
            "dropped. Move the slider to watch the tree grow, hover a token for its probability.",
          zh: "时间从左到右。每列是一步的候选，灰色的被放弃。拖动滑块看树怎样生长，悬停词元可看概率。",
        },
      }),
    },
    {
      text: {
        en: `
## Where the numbers live

All that the model knows is in its matrices. Most of them are not attention: the table of tokens and the feed-forward
networks take more. The same table serves both languages, and the output as well.`,
        zh: `
## 数都存在哪里

模型所知的一切都在它的矩阵里。其中多数并不属于注意力：词元表和前馈网络占得更多。同一张词元表供两种语言共用，
输出时也用它。`,
      },
    },
    { figure: () => ({ question: "parameters", text: "" }) },
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
from clearhead.explain import attention, beams

pipe = ch.load(${JSON.stringify(reader.model ?? "translate-en-de")})${comment(reader)}
text = ${JSON.stringify(reader.text)}
print(pipe.generate(text, num_beams=${reader.beams}))

looks = attention(pipe, text, side="cross", words=True)
weights = looks.weights.mean(axis=(0, 1))  # over layers and heads
for word, row in zip(looks.tokens, weights):  # word.text is written
    print(f"{word.text:>16}  {looks.keys[row.argmax()].text}")

tree = beams(pipe, text, num_beams=${reader.beams}, max_new_tokens=32)
print(tree)
tree.save("beams.html")  # one file, works offline`,
    },
  ],
};
