"""What a server here says: who may talk to it, how much it takes, which models it has, how its jobs go."""

SENTENCES = {
    # ---- the guard
    "method": ("{method} is not understood here: only GET and POST are.", "这里不接受 {method}，只接受 GET 和 POST。"),
    "wrong_host": (
        "This server does not go by that name. Open the address that it printed.",
        "这台服务器不叫这个名字。请打开它打印出的地址。",
    ),
    "other_site": ("Requests from another site are refused.", "拒绝来自其他网站的请求。"),
    "send_json": (
        "Send JSON, with the header content-type: application/json.",
        "请发送 JSON，并带上请求头 content-type: application/json。",
    ),
    "token": (
        "This server asks for a token: open the whole address that it printed when it was started.",
        "这台服务器需要令牌：请打开它启动时打印出的完整地址。",
    ),
    "body_too_long": (
        "The request is too long: at most {most:,} bytes are read.",
        "请求太长：最多读取 {most:,} 字节。",
    ),
    "body_cut": ("The request ended before it was complete.", "请求还没有发完就中断了。"),
    "body_slow": ("The request took too long to arrive.", "请求太久没有送达。"),
    # ---- requests
    "not_json": ("The request is not valid JSON.", "请求不是有效的 JSON。"),
    "not_a_table": ("The request must be a table (a JSON object).", "请求必须是一个表（JSON 对象）。"),
    "unknown_key": ("This request has {known}, but no", "这个请求有 {known}，但没有"),
    "nothing_here": ("There is nothing at this address.", "这个地址上什么也没有。"),
    "other_method": ("This address is asked another way.", "这个地址要用另一种方式访问。"),
    # ---- models
    "unknown_folder": (
        "There is no folder {name}, and it is no shipped name and no hub id.{near}",
        "没有文件夹 {name}，它也不是内置模型的名称或 hub 的 id。{near}",
    ),
    "unknown_store": (
        "There is no store named {name} here.{near} Stores are named when the server starts: --store FOLDER.",
        "这里没有名为 {name} 的资料库。{near}资料库在启动服务器时指定：--store 文件夹。",
    ),
    "unknown_model": ("There is no model {name} here.{near}", "这里没有模型 {name}。{near}"),
    "hub_not_allowed": (
        "{name} is not a model of this server.{near} To let it load models from the hub, start it with --allow-hub, "
        "or name this one: --model {bare}.",
        "{name} 不是这台服务器上的模型。{near}要让它从 hub 加载模型，请用 --allow-hub 启动，或指明这一个："
        "--model {bare}。",
    ),
    "model_is_folder": (
        "{name} is also a folder here, and requests may not open folders.",
        "{name} 在这里也是一个文件夹，而请求不能打开文件夹。",
    ),
    "from_hub": ("from the Hugging Face hub", "来自 Hugging Face hub"),
    "own_folder": ("a folder of yours", "你的文件夹"),
    # ---- jobs
    "busy": (
        "There are too many questions to answer. Wait for some of them, or cancel them.",
        "问题太多，一时答不过来。请等其中一些完成，或取消一些。",
    ),
    "memory": (
        "There is not enough memory for this question. Ask about a shorter text or fewer layers.",
        "内存不够回答这个问题。请换一段更短的文本，或少看几层。",
    ),
    "own_mistake": (
        "Something went wrong inside Clearhead ({error}). This is not your mistake; the terminal in which the server "
        "runs says more.",
        "Clearhead 内部出了错（{error}）。这不是你的错；运行服务器的终端里有更多说明。",
    ),
    "cancelled": ("The question was cancelled.", "问题已取消。"),
    # ---- starting
    "not_our_address": ("{host} is not an address of this machine.", "{host} 不是本机的地址。"),
    "port_taken": (
        "Port {port} is taken by another program. Choose another, or leave --port out.",
        "端口 {port} 已被其他程序占用。请换一个，或不写 --port。",
    ),
    "cannot_listen": (
        "The server cannot listen at {host}, port {port}: {reason}.",
        "服务器无法在 {host} 的端口 {port} 上监听：{reason}。",
    ),
    "no_free_port": ("No port is free at {host}.", "{host} 上没有空闲的端口。"),
}
