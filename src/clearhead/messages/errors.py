"""What errors of every room have in common."""

SENTENCES = {
    # around an error that has no Chinese of its own
    "only_in_english": ("{text}", "出了问题，说明只有英文：{text}"),
    "did_you_mean": (" Did you mean {names}?", "你想说的是 {names} 吗？"),
    "or": ("{first} or {second}", "{first} 或 {second}"),
}
