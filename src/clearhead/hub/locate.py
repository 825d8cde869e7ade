"""Where a checkpoint is: a folder, a shipped name, or a repository on the Hugging Face hub (fetched into its cache)."""

from __future__ import annotations

import os
import re
import socket
from pathlib import Path
from urllib.parse import urlsplit

from clearhead.errors import CheckpointError, InputError
from clearhead.hub.sentence import MODULES, PROMPTS, SETTINGS, read_modules
from clearhead.hub.weights import BIN, BIN_INDEX, SAFETENSORS, SAFETENSORS_INDEX, read_index
from clearhead.text.files import TARGET_FOLDER, TOKENIZER_FILES

CONFIG = "config.json"
GENERATION = "generation_config.json"
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")


def locate(
    where: str | os.PathLike[str],
    revision: str | None = None,
    hint: str = "",
    weights: bool = True,
) -> Path:
    """The folder that holds the checkpoint. A hub id is downloaded, or found in the cache when offline.

    hint      what to add where there is no such model: a name that is like it
    weights   False fetches the configuration and tokenizer only
    """
    if not isinstance(where, str | os.PathLike) or not os.fspath(where):
        raise InputError(f"A model is named by a folder, a shipped name or a hub id, not by {where!r}.")
    path = user_path(where)
    if path.is_dir():
        if revision is not None:
            raise InputError(f"{path} is a folder; only a model from the hub has a revision.")
        if not (path / CONFIG).is_file() and not (path / MODULES).is_file():
            there = ", ".join(sorted(p.name for p in path.iterdir())[:8]) or "nothing"
            raise CheckpointError(f"{path} has no {CONFIG}, so it is not a model folder. It holds {there}.")
        return path
    text = os.fspath(where)
    if path.exists():
        raise CheckpointError(f"{text} is a file. Give the folder that holds it and its {CONFIG}.")
    looks_like_path = (
        text.startswith((".", "/", "~", "\\")) or text.endswith("/") or text.count("/") > 1 or "\\" in text
    )
    if looks_like_path or not _HUB_ID.fullmatch(text):
        raise CheckpointError(f"There is no folder {text}.{hint}")
    return _from_hub(text, revision, hint, weights)


def user_path(given: str | os.PathLike[str]) -> Path:
    """A path as a person writes it, ~ being home; what can be none is an error."""
    try:
        path = Path(given).expanduser()
        path.exists()  # a name that is too long, or a NUL
    except (OSError, RuntimeError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise InputError(f"The path {os.fspath(given)[:100]!r} cannot be used: {reason}.") from None
    return path


def _from_hub(repo: str, revision: str | None, hint: str, weights: bool) -> Path:
    # huggingface_hub brings its own conventions: HF_HOME, HF_HUB_OFFLINE, HF_TOKEN, HF_ENDPOINT, its cache and log-in.
    from huggingface_hub import constants, hf_hub_download
    from huggingface_hub import errors as hub_errors

    offline = constants.HF_HUB_OFFLINE or not _answers(constants.ENDPOINT)

    def fetch(file: str, at: str | None) -> Path:
        return Path(hf_hub_download(repo, file, revision=at, local_files_only=offline))

    def fetch_if_there(file: str, at: str | None) -> Path | None:
        try:
            return fetch(file, at)
        except hub_errors.EntryNotFoundError:  # also: not in the cache while offline
            return None

    at = f" at revision {revision!r}" if revision else ""

    def fetch_weights(inside: str, at: str) -> None:
        for single, index in ((SAFETENSORS, SAFETENSORS_INDEX), (BIN, BIN_INDEX)):
            if fetch_if_there(inside + single, at):
                return
            found = fetch_if_there(inside + index, at)
            if found:
                for shard in sorted(set(read_index(found).values())):
                    fetch(inside + shard, at)
                return

    try:
        root = (fetch_if_there(MODULES, revision) or fetch(CONFIG, revision)).parent
        commit = root.name  # all files from one and the same commit
        modules = read_modules(root) if (root / MODULES).is_file() else [("Transformer", "")]
        inside = f"{modules[0][1]}/" if modules[0][1] else ""
        fetch(inside + CONFIG, commit)
        for name in (*TOKENIZER_FILES, SETTINGS, GENERATION):
            fetch_if_there(inside + name, commit)
        if fetch_if_there(f"{inside}{TARGET_FOLDER}/tokenizer.json", commit):
            for name in ("tokenizer_config.json", "special_tokens_map.json"):
                fetch_if_there(f"{inside}{TARGET_FOLDER}/{name}", commit)
        if weights:
            fetch_weights(inside, commit)
        for kind, path in modules[1:]:
            if kind in ("Pooling", "Dense"):
                fetch(f"{path}/{CONFIG}", commit)
            if kind == "Dense" and weights:
                fetch_weights(f"{path}/", commit)
        if len(modules) > 1:
            fetch_if_there(PROMPTS, commit)
        return root
    except hub_errors.GatedRepoError:
        raise CheckpointError(
            f"{repo} is gated: accept its terms on its page, then log in with `hf auth login` or set HF_TOKEN."
        ) from None
    except hub_errors.RepositoryNotFoundError:
        raise CheckpointError(
            f"There is no model {repo!r} on the hub, no shipped model and no folder of that name.{hint} "
            "If it is private, log in with `hf auth login` or set HF_TOKEN."
        ) from None
    except hub_errors.RevisionNotFoundError:
        raise CheckpointError(f"{repo} has no revision {revision!r}. Leave it out for the newest.") from None
    except hub_errors.LocalEntryNotFoundError:
        why = "HF_HUB_OFFLINE is set" if constants.HF_HUB_OFFLINE else "the hub cannot be reached"
        raise CheckpointError(
            f"{repo!r}{at} is no folder and no shipped model, and it is not in the hub's cache; {why}.{hint} "
            f"On a machine with a network, run `hf download {repo}` and copy the folder here, then load that folder."
        ) from None
    except hub_errors.EntryNotFoundError as error:
        raise CheckpointError(f"{repo}{at} on the hub is not a model Clearhead can read: {error}") from None
    except (hub_errors.HfHubHTTPError, hub_errors.HFValidationError, OSError) as error:
        raise CheckpointError(f"{repo}{at} could not be fetched from the hub: {error}") from None


def _answers(endpoint: str) -> bool:
    """Whether the hub can be reached: without this look, a machine with no network would retry for half a minute."""
    if any(os.environ.get(name) for name in ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY")):
        return True  # a proxy decides
    address = urlsplit(endpoint)
    try:
        port = address.port or (80 if address.scheme == "http" else 443)
        with socket.create_connection((address.hostname or "", port), timeout=10):
            return True
    except OSError:
        return False
