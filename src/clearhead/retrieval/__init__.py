"""A store of chunks and their vectors: built from documents, searched by meaning, on a disk or in object storage.

Scores, everywhere in this room: the higher, the more alike (metrics.py). LanceDB's distances do not leave table.py.
"""

from clearhead.retrieval.building import BuildReport, build
from clearhead.retrieval.documents import Document
from clearhead.retrieval.edited import EditedStore, PassageEdit
from clearhead.retrieval.encoder import Encoder
from clearhead.retrieval.settings import StoreSettings
from clearhead.retrieval.store import Hit, Store

__all__ = [
    "BuildReport",
    "Document",
    "EditedStore",
    "Encoder",
    "Hit",
    "PassageEdit",
    "Store",
    "StoreSettings",
    "build",
]
