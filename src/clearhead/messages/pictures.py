"""What is said about pictures: what cannot be read, what does not fit, what is missing."""

SENTENCES = {
    "no_pillow": (
        "Pictures are read with Pillow, which is not installed: pip install 'clearhead[images]'.",
        "读取图片需要 Pillow，它还没有安装：pip install 'clearhead[images]'。",
    ),
    "no_file": ("There is no picture {path}.", "没有图片 {path}。"),
    "is_folder": ("{path} is a folder; a picture is a file.", "{path} 是文件夹；图片应是一个文件。"),
    "unreadable": (
        "{path} is no picture that can be read: {reason}. Formats such as PNG, JPEG, WebP, GIF, BMP and TIFF can.",
        "{path} 不是可以读取的图片：{reason}。可以读取 PNG、JPEG、WebP、GIF、BMP、TIFF 等格式。",
    ),
    "broken": (
        "{path} is broken: {reason}. Copy or download it again.",
        "{path} 已损坏：{reason}。请重新复制或下载。",
    ),
    "unknown_format": ("its format is not known", "格式未知"),
    "is_empty": ("it is empty", "文件是空的"),
    "huge": (
        "{path} has {pixels} pixels; pictures above {most} million are refused, because unpacking one can fill the "
        "memory. Make it smaller first.",
        "{path} 有 {pixels} 个像素；超过 {most} 百万像素的图片会被拒绝，因为解开它可能占满内存。请先把它缩小。",
    ),
    "given": ("The picture that was given", "给出的图片"),
    "not_a_picture": (
        "A picture is a path, a Pillow image, an array or a tensor, not {kind}.",
        "图片可以是路径、Pillow 图像、数组或张量，而不是 {kind}。",
    ),
    "array_shape": (
        "An array of the shape {shape} is no picture: (height, width), (height, width, channels) or (channels, height, "
        "width), with 1, 3 or 4 channels.",
        "形状为 {shape} 的数组不是图片：应为（高, 宽）、（高, 宽, 通道）或（通道, 高, 宽），通道数为 1、3 或 4。",
    ),
    "array_values": (
        "The array holds numbers from {low} to {high}; a picture's are whole ones from 0 to 255, or between 0 and 1.",
        "数组中的数从 {low} 到 {high}；图片的数应是 0 到 255 的整数，或在 0 与 1 之间。",
    ),
    "no_pixels": (
        "The picture is {width} × {height} pixels: there is nothing on it.",
        "图片只有 {width} × {height} 像素：上面什么也没有。",
    ),
    "narrow": (
        "The picture is {width} × {height} pixels, so narrow that its long side would be beyond all bounds once the "
        "short one has the model's size. Cut a piece out of it.",
        "图片为 {width} × {height} 像素，过于狭长：短边放大到模型所需的大小后，长边会超出一切限度。请从中裁出一块。",
    ),
    "none": ("There is no picture to look at.", "没有图片可看。"),
    "channels": (
        "The picture has {count} channels, and {wanted} are normalised. Set do_convert_rgb to true in "
        "preprocessor_config.json.",
        "图片有 {count} 个通道，而归一化需要 {wanted} 个。"
        "请在 preprocessor_config.json 中把 do_convert_rgb 设为 true。",
    ),
    "sizes_differ": (
        "The pictures come out in different sizes ({sizes}), so they are no one tensor. Set do_center_crop, or give "
        "them one by one.",
        "处理后的图片大小不同（{sizes}），不能组成一个张量。请设置 do_center_crop，或逐张给出。",
    ),
    # ---- models
    "reads_pictures": (
        "{title} reads pictures, and this is about a text. Load a model that reads texts.",
        "{title} 读的是图片，而这是关于文本的。请加载读文本的模型。",
    ),
    "reads_both": (
        "{title} compares texts with pictures, and does nothing with a text alone but embed it. Load a model of texts.",
        "{title} 用来比较文本与图片，对单独的文本只能求向量。请加载文本模型。",
    ),
    "text_model": (
        "{path} is a picture, and {title} reads texts. Name a model that reads pictures: --model, a CLIP folder.",
        "{path} 是图片，而 {title} 读的是文本。请用 --model 指定读图片的模型，例如 CLIP 文件夹。",
    ),
    "name_a_model": (
        "{path} is a picture, and no model that reads pictures is taken by itself. Name one: --model, a CLIP folder or "
        "a hub id such as openai/clip-vit-base-patch32.",
        "{path} 是图片，而没有默认读图片的模型。请用 --model 指定一个：CLIP 文件夹，"
        "或 openai/clip-vit-base-patch32 这样的 hub id。",
    ),
    "picture_model": (
        "{title} reads pictures: give the path of one, such as photo.jpg, not {text}.",
        "{title} 读的是图片：请给出图片的路径，例如 photo.jpg，而不是 {text}。",
    ),
    "mixed": (
        "{picture} is a picture and {text} is a text. Give pictures or texts, not both.",
        "{picture} 是图片，{text} 是文本。请只给图片或只给文本。",
    ),
    "no_vectors": (
        "{title} is loaded for {task}, which gives labels and no vectors.",
        "{title} 是按 {task} 加载的，它给出标签而不是向量。",
    ),
    "no_labels": (
        "{title} is loaded for {task}, so it has no labels of its own. A whole CLIP ranks labels that are given.",
        "{title} 是按 {task} 加载的，没有自己的标签。完整的 CLIP 可以对给出的标签排序。",
    ),
    "own_labels": (
        "{title} was trained for labels of its own: leave labels and template out.",
        "{title} 是按自己的标签训练的：请不要给 labels 和 template。",
    ),
    "no_pooling": (
        "{title} says itself which vector speaks for a picture or a text: leave pooling out.",
        "{title} 自己决定用哪个向量代表图片或文本：请不要给 pooling。",
    ),
    "give_whole_clip": (
        "{title} reads pictures alone, and a search compares them with words: name a whole CLIP.",
        "{title} 只读图片，而搜索要把图片与文字比较：请指定完整的 CLIP。",
    ),
    "give_labels": (
        "{title} has no labels of its own: give some (labels), such as cat and dog.",
        "{title} 没有自己的标签：请给出一些（labels），例如 cat 和 dog。",
    ),
    "always_normalized": (
        "The vectors of {title} have unit length: texts and pictures share directions, not lengths.",
        "{title} 的向量长度为一：文本和图片共有的是方向，不是长度。",
    ),
    "one_query": ("A search takes one text or one picture.", "一次搜索只用一段文本或一张图片。"),
    "one_of_each": (
        "A picture is compared with a text, and a text with a picture: give one of each.",
        "图片与文本比较，文本与图片比较：请各给一个。",
    ),
    "none_in_folder": ("There are no pictures in {folder}.", "{folder} 里没有图片。"),
    # ---- preprocessor_config.json
    "no_settings": (
        "{folder} has neither preprocessor_config.json nor processor_config.json, so nothing says how pictures are "
        "prepared. CLIP's usual way is taken: {size} × {size} pixels.",
        "{folder} 里既没有 preprocessor_config.json 也没有 processor_config.json，没有说明图片该如何处理。"
        "按 CLIP 通常的方式处理：{size} × {size} 像素。",
    ),
    "other_processor": (
        "{path} announces the image processor {name}, which is not known here. CLIPImageProcessor is.",
        "{path} 声明的图像处理器是 {name}，这里不认识。认识的是 CLIPImageProcessor。",
    ),
    "setting": (
        "{path}: {name} is {value}; it must be {expected}.",
        "{path}：{name} 是 {value}；它应当是 {expected}。",
    ),
    "a_size": (
        'a number of pixels, {{"shortest_edge": n}} or {{"height": n, "width": n}}',
        '像素数、{{"shortest_edge": n}} 或 {{"height": n, "width": n}}',
    ),
    "a_crop": ('a number of pixels or {{"height": n, "width": n}}', '像素数或 {{"height": n, "width": n}}'),
    "a_filter": ("a filter's number, 0 to 5", "滤波器的编号，0 到 5"),
    "numbers": ("a number for each channel", "每个通道一个数"),
    "yes_or_no": ("true or false", "true 或 false"),
    "a_number": ("a number", "一个数"),
    "not_built": (
        "{path} sets {name} = {value}, which is not built here and would change the pixels.",
        "{path} 设置了 {name} = {value}，这里没有实现，而它会改变像素。",
    ),
}
