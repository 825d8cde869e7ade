"""What is said while a picture is drawn: what does not fit, what was cut, what went wrong."""

SENTENCES = {
    "no_option": ("A drawing has no option", "绘图没有选项"),
    "seeds": (
        "There are {given} seeds for {texts} texts; give one each, one for each picture, or a single number.",
        "给了 {given} 个种子，却有 {texts} 段文字；请给每段文字或每张图片一个，或只给一个数。",
    ),
    "size": (
        "A picture of {width} × {height} pixels does not fit: each side is a multiple of {scale}, as the autoencoder "
        "reads it. The nearest that fits is {near}.",
        "{width} × {height} 像素的图片不合适：自编码器要求每边都是 {scale} 的倍数。最接近的是 {near}。",
    ),
    "small": (
        "The picture is {width} × {height} pixels; the autoencoder needs {scale} at least on each side.",
        "图片只有 {width} × {height} 像素；自编码器要求每边至少 {scale} 像素。",
    ),
    "shrunk": (
        "The picture is {width} × {height} pixels; it is taken as {new_width} × {new_height}, the multiples of {scale} "
        "below that.",
        "图片是 {width} × {height} 像素；将按 {new_width} × {new_height} 处理，即不超过它的 {scale} 的倍数。",
    ),
    "tensor": (
        "A tensor of the shape {shape} is no picture: (pictures, 3, height, width), from 0 to 1 or from -1 to 1.",
        "形状为 {shape} 的张量不是图片：应为（图片数, 3, 高, 宽），取值 0 到 1 或 -1 到 1。",
    ),
    "cut": (
        "The text has {count} tokens, and the model reads {most}. This was left out: {rest}",
        "文字有 {count} 个词元，模型只读 {most} 个。以下部分被略去：{rest}",
    ),
    "no_text": (
        "What is to be drawn? Give a text, or prompt_embeds, the states of one.",
        "要画什么？请给出文字，或给出 prompt_embeds（文字的状态）。",
    ),
    "both_texts": (
        "Give {name} or {name}_embeds, which are its states already, not both.",
        "{name} 与 {name}_embeds（已是它的状态）只能给一个。",
    ),
    "not_a_text": ("{name} is a text or a list of texts, not {kind}.", "{name} 应是文字或文字的列表，而不是 {kind}。"),
    "negatives": (
        "There are {given} negative texts for {texts} texts; give one for all, or one for each.",
        "给了 {given} 段反向文字，却有 {texts} 段文字；请给一段通用的，或每段各一。",
    ),
    "states": (
        "{name} must be a tensor (texts, tokens, {width}), the states of a text, not {got}.",
        "{name} 应是形状为（文字数, 词元数, {width}）的张量，即文字的状态，而不是 {got}。",
    ),
    "latents": (
        "latents must be a tensor ({batch}, {channels}, height, width) of noise, not {got}.",
        "latents 应是形状为（{batch}, {channels}, 高, 宽）的噪声张量，而不是 {got}。",
    ),
    "latents_decide": (
        "latents are {got} and decide the size: {width} × {height} pixels. Leave width and height out.",
        "latents 的形状是 {got}，由它决定大小：{width} × {height} 像素。请不要再给 width 和 height。",
    ),
    "latents_and_picture": (
        "latents are of the shape {got}, and the picture's are {wanted}: noise is mixed in number by number.",
        "latents 的形状是 {got}，而图片的是 {wanted}：噪声要逐个数混入。",
    ),
    "pictures": (
        "There are {given} pictures for {texts} texts; give one for all, or one for each.",
        "给了 {given} 张图片，却有 {texts} 段文字；请给一张通用的，或每段各一。",
    ),
    "mask_alone": (
        "mask_image says what of a picture is drawn anew: give the picture too (image=).",
        "mask_image 说明图片的哪部分要重画：请同时给出图片（image=）。",
    ),
    "strength_alone": (
        "strength says how much of a picture is drawn anew: give the picture (image=).",
        "strength 说明图片有多少要重画：请给出图片（image=）。",
    ),
    "needs_mask": (
        "This UNet was trained to fill in pictures: it reads {channels} channels, the latent's, a mask and the masked "
        "picture. Give image= and mask_image=.",
        "这个 UNet 是为补全图片训练的：它读取 {channels} 个通道，即潜变量、遮罩和被遮的图片。"
        "请给出 image= 和 mask_image=。",
    ),
    "no_steps": (
        "With strength {strength:g} none of the {steps} steps is left: ask for more, or for strength {least:g}.",
        "强度为 {strength:g} 时，{steps} 步中一步也不剩：请增加步数，或令强度至少为 {least:g}。",
    ),
    "not_numbers": (
        "The drawing came out as {what} in {dtype}: numbers too large for it. {advice}",
        "以 {dtype} 计算时结果出现了 {what}：数值超出了它的范围。{advice}",
    ),
    "half_advice": (
        'Load the model with dtype="bfloat16" or "float32".',
        '请用 dtype="bfloat16" 或 "float32" 载入模型。',
    ),
    "other_advice": (
        "Try another seed or scheduler, fewer guidance_scale, and check the weights.",
        "请换一个种子或调度器，减小 guidance_scale，并检查权重。",
    ),
    "channels": (
        "The UNet reads {unet} channels and the autoencoder's latents have {vae}: they do not belong together.",
        "UNet 读取 {unet} 个通道，而自编码器的潜变量有 {vae} 个：二者不配套。",
    ),
    "widths": (
        "The UNet listens to states of width {unet}, and the text encoder's are {text}: they do not belong together.",
        "UNet 读取宽度为 {unet} 的文字状态，而文字编码器的宽度是 {text}：二者不配套。",
    ),
    "no_words": (
        "A single file has no tokenizer in it, and there is none in {path}: put CLIP's vocab.json and merges.txt "
        "there, or say where they are with vocab=. Until then it draws from prompt_embeds only.",
        "单个文件中没有分词器，{path} 里也没有：请把 CLIP 的 vocab.json 和 merges.txt 放进去，或用 vocab= 指明位置。"
        "在此之前只能用 prompt_embeds 绘图。",
    ),
    "does_not_draw": (
        "{title} does not draw: this is asked of a Stable Diffusion model.",
        "{title} 不会绘图：这个问题只适用于 Stable Diffusion 模型。",
    ),
    "ask_about_drawing": (
        "{title} draws pictures. Ask explain.word_maps, explain.drawing_steps, explain.noise_schedule or "
        "explain.forward_process about it.",
        "{title} 用来绘图。可以用 explain.word_maps、explain.drawing_steps、explain.noise_schedule 或 "
        "explain.forward_process 来询问。",
    ),
    "no_maps": (
        "Nothing was looked at: no layer has the heads {heads}, or no step is one of {steps}.",
        "什么也没有看到：没有哪一层有头 {heads}，或没有哪一步属于 {steps}。",
    ),
    "two_steps": ("The way from picture to noise needs two steps at least.", "从图片到噪声至少需要两步。"),
    "ckpt": (
        "{path} is a pickle, which can run code when it is opened: it is not read. Get the model as .safetensors; most "
        "authors publish it beside the .ckpt, or convert the file in a place you trust.",
        "{path} 是 pickle 文件，打开时可能运行代码，因此不读取。请取得 .safetensors 版本：多数作者会与 .ckpt 一同发布；"
        "或在你信任的环境中转换。",
    ),
}
