"""Why a model cannot be loaded: no such name, no such folder, no network, no such device."""

SENTENCES = {
    "not_here": ("{name} is not here.{how}", "这里没有 {name}。{how}"),
    "not_a_name": (
        "A model is named by a folder, a shipped name or a hub id, not by {where}.",
        "模型用文件夹、内置名称或 hub 的 id 来指明，而不是 {where}。",
    ),
    "no_folder": ("There is no folder {name}.{hint}", "没有文件夹 {name}。{hint}"),
    "is_a_file": (
        "{name} is a file. Give the folder that holds it and its {config}.",
        "{name} 是一个文件。请给出含有它和 {config} 的文件夹。",
    ),
    "no_vectors": (
        "{name} is a file, and holds no word vectors: its first line is no word with numbers behind it. A model is "
        "named by the folder that holds it and its {config}.",
        "{name} 是一个文件，里面不是词向量：第一行不是一个词加上若干个数。模型要用含有它和 {config} 的文件夹来指明。",
    ),
    "empty_file": (
        "{name} is a file with nothing in it. Was it fetched whole?",
        "{name} 是一个文件，但里面空无一物。下载完整吗？",
    ),
    "no_model_folder": (
        "{path} has no {config}, so it is not a model folder. It holds {listing}.",
        "{path} 里没有 {config}，所以不是模型文件夹。里面有 {listing}。",
    ),
    "nothing": ("nothing", "空无一物"),
    "device": (
        "The device {device} cannot be used here: {reason}. The CPU always can: device='cpu'.",
        "这里不能用设备 {device}：{reason}。CPU 总是可以用：device='cpu'。",
    ),
    # ---- the hub
    "gated": (
        "{repo} is gated: accept its terms on its page, then log in with `hf auth login` or set HF_TOKEN.",
        "{repo} 需要许可：请在它的页面上接受条款，然后用 `hf auth login` 登录，或设置 HF_TOKEN。",
    ),
    "not_on_hub": (
        "There is no model {repo} on the hub, no shipped model and no folder of that name.{hint} If it is private, log "
        "in with `hf auth login` or set HF_TOKEN.",
        "hub 上没有模型 {repo}，也没有这个名字的内置模型或文件夹。{hint}如果它是私有的，"
        "请用 `hf auth login` 登录，或设置 HF_TOKEN。",
    ),
    "not_in_cache": (
        "{what} is no folder and no shipped model, and it is not in the hub's cache; {why}.{hint} On a machine with a "
        "network, run `hf download {repo}` and copy the folder here, then load that folder.",
        "{what} 不是文件夹，也不是内置模型，并且不在 hub 的缓存里；{why}。{hint}请在联网的机器上运行 "
        "`hf download {repo}`，把文件夹复制到这里再加载。",
    ),
    "offline_set": ("HF_HUB_OFFLINE is set", "设置了 HF_HUB_OFFLINE"),
    "unreachable": ("the hub cannot be reached", "无法连接 hub"),
}
