"""Load, save and describe a checkpoint: a folder of one part or several, or a hub id."""

from clearhead.hub.config import architecture_of, read_config, read_generation
from clearhead.hub.export import in_format
from clearhead.hub.fastai import FASTAI_SUFFIXES, is_fastai_file, load_fastai, save_fastai, words_beside
from clearhead.hub.load import as_device, as_dtype, load_model
from clearhead.hub.locate import locate, user_path
from clearhead.hub.parts import ModelIndex, has_parts, part_folders, read_index, write_index
from clearhead.hub.precision import apply as apply_precision
from clearhead.hub.precision import check_quantize
from clearhead.hub.save import save_elmo, save_model, write_description
from clearhead.hub.sentence import SentenceModules, is_sentence_folder, read_sentence, transformer_folder
from clearhead.hub.weights import open_weights

__all__ = [
    "FASTAI_SUFFIXES",
    "ModelIndex",
    "SentenceModules",
    "apply_precision",
    "architecture_of",
    "as_device",
    "as_dtype",
    "check_quantize",
    "has_parts",
    "in_format",
    "is_fastai_file",
    "is_sentence_folder",
    "load_fastai",
    "load_model",
    "locate",
    "open_weights",
    "part_folders",
    "read_config",
    "read_generation",
    "read_index",
    "read_sentence",
    "save_elmo",
    "save_fastai",
    "save_model",
    "transformer_folder",
    "user_path",
    "words_beside",
    "write_description",
    "write_index",
]
