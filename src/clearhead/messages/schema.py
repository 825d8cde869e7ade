"""What a value must be, and what is said of one that is not (schema.py)."""

SENTENCES = {
    "wrong": ("{name} is {value}; it must be {expected}.", "{name} 是 {value}；它必须是{expected}。"),
    "with_hints": ("{sentence}{hint}{near}", "{sentence}{hint}{near}"),
    "too_long": (
        "{name} has {count:,} characters; {most:,} are the most. Shorten it.",
        "{name} 有 {count:,} 个字符，最多 {most:,} 个。请缩短。",
    ),
    "too_many": (
        "{name} holds {count:,} values; {most:,} are the most.",
        "{name} 有 {count:,} 个值，最多 {most:,} 个。",
    ),
    "half_character": (
        "{name} holds half a character (a lone surrogate), which is no text: {value}.",
        "{name} 含有半个字符（单独的代理项），不是文本：{value}。",
    ),
    "unknown_name": ("{whose} {name}.{near}", "{whose} {name}。{near}"),
    "unknown_key": ("unknown key {name}.{near} There is: {known}.", "没有 {name} 这一项。{near}有的是：{known}。"),
    # ---- kinds of values
    "int": ("a whole number{bounds}", "整数{bounds}"),
    "float": ("a number{bounds}", "数{bounds}"),
    "bool": ("true or false", "是或否（true 或 false）"),
    "text": ("a text", "一段文本"),
    "null": ("null", "空（null）"),
    "table": ("a table", "表（对象）"),
    "one_of": ("one of {choices}", "{choices} 之一"),
    "list": ("a list", "列表"),
    "list_of": ("a list of {items}", "列表，各项是{items}"),
    "list_of_parts": ("a list of {count}: {items}", "{count} 项的列表：{items}"),
    "ints": ("whole numbers{bounds}", "整数{bounds}"),
    "floats": ("numbers{bounds}", "数{bounds}"),
    "texts": ("texts", "文本"),
    "tables": ("tables", "表（对象）"),
    "values": ("values", "值"),
    "lists_of": ("lists of {items}", "列表（各项是{items}）"),
    # ---- bounds of a number
    "not_so_large": ("{number}, of a size below 2 to the power of 63", "{number}，大小不到 2 的 63 次方"),
    "from_to": (" from {least} to {most}", "，从 {least} 到 {most}"),
    "from_to_below": (" from {least} to below {below}", "，从 {least} 到小于 {below}"),
    "at_least": (" of at least {least}", "，不小于 {least}"),
    "above": (" above {above}", "，大于 {above}"),
    "at_most": (" of at most {most}", "，不大于 {most}"),
    "below": (" below {below}", "，小于 {below}"),
    "above_to": (" above {above} and at most {most}", "，大于 {above} 且不大于 {most}"),
    "between": (" above {above} and below {below}", "，大于 {above} 且小于 {below}"),
}
