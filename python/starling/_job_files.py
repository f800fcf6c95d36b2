# SPDX-License-Identifier: Apache-2.0
"""Jobs as people have them: a file, its text, a dictionary; and where relative paths begin."""
from __future__ import annotations

import copy
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from starling.errors import ConfigurationError

# A value beside one of the contract's fields of format "uri" (uri, imagesUri, labelsUri) in YAML:
# in quotes, or plain up to a comment or what ends it in a flow.
_YAML_URI = re.compile(
    r"""(?P<head>(?:^|[\s{,])["']?(?:uri|[A-Za-z]+Uri)["']?:[ \t]+)"""
    r"""(?P<value>"[^"\n]*"|'[^'\n]*'|[^\s"'#&*|>!%@`{\[][^\n,}#]*)""", re.MULTILINE)


@dataclass(frozen=True)
class JobBody:
    content: bytes
    media_type: str


def read_job(job: Mapping[str, Any] | str | os.PathLike[str], absolute: bool) -> JobBody:
    """A str with a line break or a brace is text, any other one a path, as is a PathLike.

    `absolute`: relative data paths are made absolute as `starling run` does it: beside the file if
    something is there, else below the working directory.
    """
    if isinstance(job, Mapping):
        return _of_object(job, Path(), absolute)
    folder, text = Path(), ""
    if isinstance(job, str) and ("\n" in job or "{" in job):
        text = job
    else:
        path = Path(job)
        folder = path.parent
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigurationError(f"{path}: the job cannot be read: {error}") from error
    try:
        read = json.loads(text)
    except ValueError:
        return _of_yaml(text, folder, absolute)
    if not isinstance(read, dict):
        raise ConfigurationError("a job is an object with apiVersion, kind, metadata and spec")
    return _of_object(read, folder, absolute)


def _of_object(job: Mapping[str, Any], folder: Path, absolute: bool) -> JobBody:
    whole = copy.deepcopy(dict(job))
    if absolute:
        _make_absolute(whole.get("spec"), folder)
    try:
        content = json.dumps(whole, allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        raise ConfigurationError(f"the job is not JSON: {error}") from error
    return JobBody(content, "application/json")


def _of_yaml(text: str, folder: Path, absolute: bool) -> JobBody:
    def replace(match: re.Match[str]) -> str:
        value = match["value"]
        quoted = value[0] in "\"'"
        plain = value[1:-1] if quoted else value.rstrip()
        place = _absolute(plain, folder)
        return match[0] if place == plain else match["head"] + json.dumps(place)

    content = _YAML_URI.sub(replace, text) if absolute else text
    return JobBody(content.encode(), "application/yaml")


def _make_absolute(node: object, folder: Path) -> None:
    if isinstance(node, dict):
        for key, value in node.items():
            if key == "template":
                continue  # a pod's, where `uri` is not ours
            if isinstance(value, str) and (key == "uri" or key.endswith("Uri")):
                node[key] = _absolute(value, folder)
            else:
                _make_absolute(value, folder)
    elif isinstance(node, list):
        for item in node:
            _make_absolute(item, folder)


def _absolute(uri: str, folder: Path) -> str:
    if not uri or "://" in uri or uri.startswith("/"):
        return uri
    beside = os.path.abspath(folder / uri)
    return beside if os.path.exists(beside) else os.path.abspath(uri)
