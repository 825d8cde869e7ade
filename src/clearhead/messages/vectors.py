"""Word vectors: words that a table does not have, and what cannot be computed of those it has."""

SENTENCES = {
    "word_is_text": ("A word is text, not {got}.", "词应当是文本，而不是 {got}。"),
    "word_or_vector": (
        "Give a word or a vector of numbers, not {got}.",
        "请给出一个词或一个由数组成的向量，而不是 {got}。",
    ),
    "unknown_word": ("The vectors have no word “{word}”.{hint}", "词向量里没有“{word}”这个词。{hint}"),
    "no_word_of_text": (
        "The vectors have no word of “{text}”, so there is nothing to take the mean of.",
        "词向量里没有“{text}”中的任何词，无从取平均。",
    ),
    "no_sign": (
        "There is neither + nor - between “{before}” and “{after}”. Write them between spaces: king - man + woman.",
        "“{before}”和“{after}”之间没有 + 或 -。请在两边留空格：king - man + woman。",
    ),
    "no_word_behind": ("There is no word behind “{sign}”.", "“{sign}”后面没有词。"),
    "nothing_asked": (
        "There is no word. Give one, or a sum of words: king - man + woman.",
        "没有词。请给出一个词，或词的加减：king - man + woman。",
    ),
    "several_words": (
        "An odd one out is found among several words: give a list of at least two.",
        "要在几个词里找出不同类的一个：请给出至少两个词的列表。",
    ),
    "how_many": ("k says how many words are wanted: 1 or more, not {k}.", "k 是想要的词数：至少为 1，而不是 {k}。"),
    "no_direction": (
        "{what} comes to a vector of zeros (or of no numbers), which has no direction and no neighbours.",
        "{what} 得到的是零向量（或不是数），没有方向，也就没有近邻。",
    ),
    "this_vector": ("This", "它"),
    "wrong_width": (
        "A vector of this table has {width} numbers; this has the shape {shape}.",
        "这张表里的向量有 {width} 个数；给出的形状是 {shape}。",
    ),
    "reads_words": (
        "{title} is a table of word vectors: it looks words up one by one and reads no text. Ask it with clearhead "
        "vectors, or load a model that reads text.",
        "{title} 是一张词向量表：它逐个查词，不读文本。请用 clearhead vectors 来问它，或加载读文本的模型。",
    ),
    "map_needs_two": (
        "A map needs two words or more, with spaces between: king queen man woman.",
        "地图至少需要两个词，用空格隔开：king queen man woman。",
    ),
    "too_many_words": (
        "{count} words are too many for one map: give {most} at most.",
        "{count} 个词对一张地图来说太多了：最多 {most} 个。",
    ),
    "loose_arrow": (
        "An arrow joins two words: man -> woman. One here has no word on one side.",
        "箭头连接两个词：man -> woman。这里有一个箭头缺了一边的词。",
    ),
    "no_table": (
        "{title} is no table of word vectors. Name one: glove, or a file in GloVe's or word2vec's format.",
        "{title} 不是词向量表。请指明一个：glove，或 GloVe、word2vec 格式的文件。",
    ),
    "sentence_is_text": (
        "A sentence is text, not {got}. Give a text with one in each line, or a list of strings.",
        "句子应当是文本，而不是 {got}。请给出每行一句的文本，或字符串的列表。",
    ),
    "no_shared_word": (
        "The sentences have no word in common that is used twice. Give several sentences with one word in all of them, "
        "one in each line, or name it (word).",
        "这些句子没有共同的、至少用了两次的词。请给出几个含有同一个词的句子，每行一句，或指明这个词（word）。",
    ),
    "not_in_sentence": (
        "“{word}” does not stand in “{sentence}”. Every sentence needs the word, spelled the same; upper or lower case "
        "does not matter.",
        "“{sentence}”里没有“{word}”。每个句子都要有这个词，拼写相同，大小写不限。",
    ),
    "needs_two_uses": (
        "“{word}” is used only once. Give two sentences with it or more, one in each line.",
        "“{word}”只用了一次。请给出至少两个含有它的句子，每行一句。",
    ),
    "too_many_uses": (
        "{count} uses of a word are too many for one picture: give {most} at most.",
        "一个词的 {count} 次使用对一幅图来说太多了：最多 {most} 次。",
    ),
    "layers_not_as_wide": (
        "These layers are not equally wide, so there is no mean of them. Choose one layer.",
        "这几层的宽度不同，无法取平均。请只选一层。",
    ),
    "not_read": (
        "The model did not read the word in “{sentence}”: the sentence may be longer than it can take.",
        "模型没有读到“{sentence}”中的这个词：句子可能超过了它能读的长度。",
    ),
}
