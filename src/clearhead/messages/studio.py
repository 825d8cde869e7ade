"""What the studio says beyond what every server does: answers that are too large, files, training runs."""

SENTENCES = {
    "too_many_tokens": (
        "{name} has {count:,} tokens for {model}; the studio explains {most:,} at most. Shorten it, or ask from "
        "Python, where there is no such limit.",
        "{name} 对 {model} 来说有 {count:,} 个词元；工作室最多解释 {most:,} 个。"
        "请缩短，或改用 Python，那里没有此限制。",
    ),
    "answer_too_large": (
        "The answer holds {size:,.0f} MiB of numbers; the page takes {most:,.0f} at most. Ask about a shorter text, or "
        "about fewer layers.",
        "答案含有 {size:,.0f} MiB 的数；页面最多接收 {most:,.0f} MiB。请换一段更短的文本，或少看几层。",
    ),
    "nothing_to_edit": (
        "The question {question} looks nothing up, so there are no passages to edit.",
        "问题 {question} 不查阅资料库，没有可改写的段落。",
    ),
    "unknown_option": ("The page cannot set", "页面不能设置"),
    "no_runs_folder": (
        "No folder of runs was named. Start the studio with --runs FOLDER.",
        "没有指定训练文件夹。请用 --runs 文件夹 启动工作室。",
    ),
    "runs_folder": (
        "There is no folder {folder}. Training makes one: clearhead train … out=runs/mine.",
        "没有文件夹 {folder}。训练会创建它：clearhead train … out=runs/mine。",
    ),
    "unknown_run": (
        "There is no such run. It may have been moved or deleted; look at the list again.",
        "没有这次训练。它可能已被移走或删除；请再看一下列表。",
    ),
    "unreadable_log": ("The log of this run cannot be read: {reason}.", "无法读取这次训练的日志：{reason}。"),
    "after": (
        "after is a number of bytes: what the last answer called next.",
        "after 是字节数，即上一次回答里的 next。",
    ),
}
