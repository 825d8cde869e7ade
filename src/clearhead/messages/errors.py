"""What errors of every room have in common."""

SENTENCES = {
    # around an error that has no Chinese of its own
    "only_in_english": ("{text}", "出了问题，说明只有英文：{text}"),
    "did_you_mean": (" Did you mean {names}?", "你想说的是 {names} 吗？"),
    "zoo_not_installed": (
        "{near} The trained models that ship with Clearhead are a package of their own, which is not installed: "
        'pip install "clearhead[zoo]".',
        '{near}随 Clearhead 提供的训练好的模型是一个单独的包，尚未安装：pip install "clearhead[zoo]"。',
    ),
    "or": ("{first} or {second}", "{first} 或 {second}"),
}
