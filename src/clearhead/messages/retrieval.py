"""What is said of a store of chunks: how it is made and searched, and what does not fit."""

SENTENCES = {
    "not_installed": (
        'A store needs LanceDB, which is not installed: pip install "clearhead[retrieval]" (or pip install lancedb).',
        '向量库需要 LanceDB，但这里没有安装：pip install "clearhead[retrieval]"（或 pip install lancedb）。',
    ),
    "ray_not_installed": (
        'Embedding on a cluster needs Ray, which is not installed: pip install "clearhead[ray]". Without it, this '
        "process embeds.",
        '在集群上计算向量需要 Ray，但这里没有安装：pip install "clearhead[ray]"。没有它就由本进程计算。',
    ),
    "ray_not_reached": (
        "There is no Ray cluster at {address}: {reason} Give the address of its head node, or local for this machine.",
        "在 {address} 找不到 Ray 集群：{reason} 请给出其头节点的地址，或用 local 表示本机。",
    ),
    "no_store": (
        "There is no store at {where}. Build one: clearhead index build {where} texts/*.txt",
        "{where} 没有向量库。请先建立：clearhead index build {where} texts/*.txt",
    ),
    "shipped": (
        "The store {name} ships with Clearhead and is not written to. Copy it first: clearhead index copy {name} mine",
        "资料库 {name} 随 Clearhead 发布，不能写入。请先复制：clearhead index copy {name} mine",
    ),
    "copy_exists": (
        "{where} is there already. Copy the store to a new folder.",
        "{where} 已经存在。请把库复制到新的文件夹。",
    ),
    "copy_folders": (
        "A store is copied from a folder to a folder; object storage has commands of its own for that.",
        "只能把库从文件夹复制到文件夹；对象存储有自己的复制命令。",
    ),
    "is_a_file": (
        "{where} is a file; a store is a folder. Give another name.",
        "{where} 是文件；向量库是文件夹。请换一个名字。",
    ),
    "other_files": (
        "{where} is no store: it holds other files ({files}). Give a new folder, or an empty one.",
        "{where} 不是向量库：里面有别的文件（{files}）。请给出新的或空的文件夹。",
    ),
    "not_ours": (
        "{where} holds a table of LanceDB that Clearhead has not made. Give another folder.",
        "{where} 里的 LanceDB 表不是 Clearhead 建立的。请给出另一个文件夹。",
    ),
    "version": (
        "{where} was made by another version of Clearhead (layout {version}; this one reads {ours}). Build it again "
        "in a new folder.",
        "{where} 由另一个版本的 Clearhead 建立（布局 {version}；本版本读 {ours}）。请在新文件夹里重新建立。",
    ),
    "damaged": (
        "The store {where} is damaged and cannot be read: {reason}. Nothing was changed. Build it again from the texts "
        "in a new folder, or bring back a copy.",
        "向量库 {where} 已损坏，无法读取：{reason}。没有改动任何内容。请用原文在新文件夹里重新建立，或恢复备份。",
    ),
    "cannot_write": (
        "The store {where} cannot be written: {reason}. What was committed before is whole; run again to go on.",
        "无法写入向量库 {where}：{reason}。之前提交的内容是完整的；再次运行即可继续。",
    ),
    "in_use": (
        "Another process is writing to {where}. Wait for it, or build in another folder.",
        "另一个进程正在写入 {where}。请等它结束，或在另一个文件夹里建立。",
    ),
    "width": (
        "The store {where} is damaged: its vectors have {found} numbers, and {width} are written down.",
        "向量库 {where} 已损坏：其向量有 {found} 个数，而记录为 {width} 个。",
    ),
    "made_otherwise": (
        "The store {where} was made with {name} {has}, and {asked} is asked for. A store keeps what it was made with: "
        "leave {name} out, or build another in a new folder.",
        "向量库 {where} 建立时 {name} 为 {has}，而现在要求 {asked}。向量库的设置不变："
        "请去掉 {name}，或在新文件夹里另建一个。",
    ),
    "other_encoder": (
        "The store {where} was made with another encoder: {kept} (fingerprint {kept_print}), and this is {name} "
        "(fingerprint {print}). Their vectors cannot be compared: name the encoder it was made with, or build another "
        "store in a new folder.",
        "向量库 {where} 是用另一个编码器建立的：{kept}（指纹 {kept_print}），而这是 {name}（指纹 {print}）。"
        "它们的向量无法比较：请指明建库时的编码器，或在新文件夹里另建一个。",
    ),
    "encoder_gone": (
        "The store {where} was made with the encoder {encoder}, which cannot be had: {reason} Say where it is now: "
        "--encoder, or Store(…, encoder=…).",
        "向量库 {where} 用编码器 {encoder} 建立，而现在无法得到它：{reason} 请说明它现在在哪里：--encoder，或 "
        "Store(…, encoder=…)。",
    ),
    "other_tokenizer": (
        "The chunks of {where} were cut with the tokenizer of {kept}, and that of {name} cuts otherwise. Name the one "
        "it was made with, or build another store in a new folder.",
        "{where} 的片段是用 {kept} 的分词器切分的，而 {name} 的分词器切法不同。"
        "请指明建库时的分词器，或在新文件夹里另建一个。",
    ),
    "chunk_too_long": (
        "Chunks of {size} tokens are too long for {encoder}, which reads {limit} at most. Ask for shorter chunks, or "
        "another encoder.",
        "{size} 个词元的片段对 {encoder} 来说太长，它最多读 {limit} 个。请用更短的片段或另一个编码器。",
    ),
    "no_encoder": (
        "{name} is a {family}, which gives no vector for a text. Name an encoder such as bert-mini.",
        "{name} 是 {family}，不能给出文本的向量。请指明一个编码器，例如 bert-mini。",
    ),
    "adapter": (
        "{name} is an adapter, and an encoder must be a whole model: save it with its base first (clearhead models "
        "export).",
        "{name} 是适配器，而编码器必须是完整的模型：请先把它和基座模型一起保存（clearhead models export）。",
    ),
    "document_is_text": (
        "The {what} of a document must be a string, not {got}.",
        "文档的 {what} 必须是字符串，而不是 {got}。",
    ),
    "document_needs_a_name": ("A document needs a name.", "文档需要一个名字。"),
    "no_documents": (
        "There is no document to keep: the corpus is empty. Give at least one word of text.",
        "没有可保存的文档：语料是空的。请至少给出一个词的文本。",
    ),
    "no_passage": (
        "There is no passage {position} of a document {document} in this store.{near}",
        "此向量库里没有文档 {document} 的第 {position} 段。{near}",
    ),
    "empty_passage": ("An edited passage has to say something.", "改写后的段落不能为空。"),
    "no_document": (
        "{where} has no document {name}.{near} See them all: clearhead index show {where} --documents",
        "{where} 里没有文档 {name}。{near}查看全部：clearhead index show {where} --documents",
    ),
    "index": (
        "index is {index}; it must be auto, exact or ivf-pq.",
        "index 为 {index}；它必须是 auto、exact 或 ivf-pq。",
    ),
    "too_few_for_index": (
        "An IVF-PQ index learns its codes from at least {fewest} chunks, and there are {count}. Exact search is quick "
        "enough here: leave it at that.",
        "IVF-PQ 索引至少要从 {fewest} 个片段学习编码，而这里有 {count} 个。这里精确搜索已足够快：保持即可。",
    ),
    "no_query": (
        "The query must be a text of at least one word.",
        "查询必须是至少含一个词的文本。",
    ),
    "unknown_script": (
        "{encoder} knows no word of the query: it was not made for this script or language, so whatever it found would "
        "mean nothing. Ask in the language of the texts, or build the store with an encoder that knows both.",
        "{encoder} 不认识查询中的任何词：它不是为这种文字或语言而训练的，找到的结果没有意义。"
        "请用原文的语言查询，或用两种语言都认识的编码器建库。",
    ),
    "check_count": (
        "There are {found} chunks to read, and {count} are counted.",
        "能读到 {found} 个片段，而计数为 {count} 个。",
    ),
    "check_vector": (
        "{document}: a vector is not of unit length, or not a number.",
        "{document}：有一个向量长度不为一，或不是数。",
    ),
    "check_chunks": (
        "{document}: {found} chunks are there, and it should have {chunks}, each once.",
        "{document}：有 {found} 个片段，而应有 {chunks} 个，各一次。",
    ),
    "check_text": (
        "{document}: its text is not the one that was added.",
        "{document}：它的文本与加入时不同。",
    ),
    "check_keys": (
        "{wrong} of {count} chunks that were embedded again have other vectors than those kept: {encoder} did not make "
        "them.",
        "重新计算的 {count} 个片段中有 {wrong} 个的向量与保存的不同：它们不是 {encoder} 给出的。",
    ),
}
