"""A repository on the Hugging Face hub, fetched into its cache: the files of a checkpoint and no others.

huggingface_hub brings its own conventions: HF_HOME, HF_HUB_OFFLINE, HF_TOKEN, HF_ENDPOINT, its cache and log-in.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path
from urllib.parse import urlsplit

from clearhead.errors import CheckpointError
from clearhead.hub.config import CONFIG, GENERATION
from clearhead.hub.parts import INDEX, read_index
from clearhead.hub.sentence import MODULES, PROMPTS, SETTINGS, read_modules
from clearhead.hub.weights import WEIGHT_FILES, read_shard_index
from clearhead.messages import say
from clearhead.text.files import TARGET_FOLDER, TOKENIZER_FILES

PART_FILES = ("scheduler_config.json", "preprocessor_config.json")  # of parts that are no models


def download(repo: str, revision: str | None, hint: str, weights: bool) -> Path:
    """The folder in the hub's cache that holds the checkpoint, all of it from one commit."""
    from huggingface_hub import constants
    from huggingface_hub import errors as hub_errors

    suffix = f" at revision {revision!r}" if revision else ""
    offline = constants.HF_HUB_OFFLINE or not _is_reachable(constants.ENDPOINT)
    try:
        return _Repository(repo, revision, offline).fetch_checkpoint(weights)
    except hub_errors.GatedRepoError:
        raise CheckpointError(say("loading.gated", repo=repo)) from None
    except hub_errors.RepositoryNotFoundError:
        raise CheckpointError(say("loading.not_on_hub", repo=repr(repo), hint=hint)) from None
    except hub_errors.RevisionNotFoundError:
        raise CheckpointError(f"{repo} has no revision {revision!r}. Leave it out for the newest.") from None
    except hub_errors.LocalEntryNotFoundError:
        why = say("loading.offline_set" if constants.HF_HUB_OFFLINE else "loading.unreachable")
        names = {"what": f"{repo!r}{suffix}", "repo": repo, "hint": hint, "why": why}
        raise CheckpointError(say("loading.not_in_cache", **names)) from None
    except hub_errors.EntryNotFoundError as error:
        raise CheckpointError(f"{repo}{suffix} on the hub is not a model Clearhead can read: {error}") from None
    except (hub_errors.HfHubHTTPError, hub_errors.HFValidationError, OSError) as error:
        raise CheckpointError(f"{repo}{suffix} could not be fetched from the hub: {error}") from None


class _Repository:
    """One revision of a repository; once its first file is there, the commit it belongs to."""

    def __init__(self, repo: str, revision: str | None, offline: bool) -> None:
        self.repo, self.revision, self.offline = repo, revision, offline

    def fetch(self, file: str) -> Path:
        from huggingface_hub import hf_hub_download

        return Path(hf_hub_download(self.repo, file, revision=self.revision, local_files_only=self.offline))

    def fetch_optional(self, file: str) -> Path | None:
        from huggingface_hub.errors import EntryNotFoundError

        try:
            return self.fetch(file)
        except EntryNotFoundError:  # also: not in the cache while offline
            return None

    def fetch_checkpoint(self, weights: bool) -> Path:
        first = self.fetch_optional(MODULES) or self.fetch_optional(CONFIG) or self.fetch_optional(INDEX)
        root = (first or self.fetch(CONFIG)).parent  # where there is none of them, the error names config.json
        self.revision = root.name
        if first is not None and first.name == INDEX:
            self._fetch_parts(root, weights)
        elif first is not None and first.name == MODULES:
            self._fetch_sentence_modules(root, weights)
        else:
            self._fetch_model("", weights)
        return root

    def _fetch_model(self, prefix: str, weights: bool) -> None:
        """prefix: "", or the folder inside the repository and a slash"""
        self.fetch(prefix + CONFIG)
        for name in (*TOKENIZER_FILES, SETTINGS, GENERATION):
            self.fetch_optional(prefix + name)
        if self.fetch_optional(f"{prefix}{TARGET_FOLDER}/tokenizer.json"):
            for name in ("tokenizer_config.json", "special_tokens_map.json"):
                self.fetch_optional(f"{prefix}{TARGET_FOLDER}/{name}")
        if weights:
            self._fetch_weights(prefix)

    def _fetch_sentence_modules(self, root: Path, weights: bool) -> None:
        (_, transformer), *others = read_modules(root)
        self._fetch_model(f"{transformer}/" if transformer else "", weights)
        for kind, folder in others:
            if kind in ("Pooling", "Dense"):
                self.fetch(f"{folder}/{CONFIG}")
            if kind == "Dense" and weights:
                self._fetch_weights(f"{folder}/")
        self.fetch_optional(PROMPTS)

    def _fetch_parts(self, root: Path, weights: bool) -> None:
        for part in read_index(root).parts:
            for name in (CONFIG, *PART_FILES, *TOKENIZER_FILES):
                self.fetch_optional(f"{part}/{name}")
            if weights:
                self._fetch_weights(f"{part}/")

    def _fetch_weights(self, prefix: str) -> None:
        for file, index in WEIGHT_FILES:
            if self.fetch_optional(prefix + file):
                return
            index_path = self.fetch_optional(prefix + index)
            if index_path:
                for shard in sorted(set(read_shard_index(index_path).values())):
                    self.fetch(prefix + shard)
                return


def _is_reachable(endpoint: str) -> bool:
    """Whether the hub answers: without this look, a machine with no network would retry for half a minute."""
    if any(os.environ.get(name) for name in ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY")):
        return True  # a proxy decides
    address = urlsplit(endpoint)
    try:
        port = address.port or (80 if address.scheme == "http" else 443)
        with socket.create_connection((address.hostname or "", port), timeout=10):
            return True
    except OSError:
        return False
