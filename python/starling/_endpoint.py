# SPDX-License-Identifier: Apache-2.0
"""Where the server is, and as whom we ask: what was given, else the environment, else this home.

Both are looked up anew for each request: a control plane that was started again has another port,
and a service account's token is replaced every hour.
"""
from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from starling.errors import ConfigurationError

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


@dataclass(frozen=True)
class Endpoint:
    """`url` and `token` may raise ConfigurationError; the token may be empty."""

    url: Callable[[], str]
    token: Callable[[], str]
    local: bool  # the server is this machine's own, and sees the same files


def home_folder(environment: Mapping[str, str]) -> Path:
    """The folder in which `starling up` keeps its state."""
    if environment.get("STARLING_HOME"):
        return Path(environment["STARLING_HOME"]).absolute()
    state = environment.get("XDG_STATE_HOME", "")
    base = Path(state) if state.startswith("/") else Path.home() / ".local" / "state"
    return base / "starling"


def default_namespace(environment: Mapping[str, str]) -> str:
    """The pod's own where this is a pod, else `default`."""
    named = environment.get("STARLING_NAMESPACE")
    return named or _read(SERVICE_ACCOUNT / "namespace") or "default"


def find_endpoint(url: str | None, token: str | None, token_file: str | os.PathLike[str] | None,
                  environment: Mapping[str, str]) -> Endpoint:
    """What is None was not given. A home's own token goes to that home's server alone."""
    given = url or environment.get("STARLING_SERVER") or ""
    home = home_folder(environment)
    of_home = not given or given.rstrip("/") == _url_of(home)
    if given:
        _check(given)
    secret = token or (None if token_file else environment.get("STARLING_TOKEN"))
    path = Path(token_file) if token_file else None
    if path is None and secret is None:
        path = home / "api.token" if of_home else SERVICE_ACCOUNT / "token"

    def current_token() -> str:
        if secret is not None or path is None:
            return secret or ""
        text = _read(path)
        if not text and token_file:
            raise ConfigurationError(f"{path}: the token cannot be read; write it there")
        return text

    def current_url() -> str:
        return given.rstrip("/") if given else _require_url(home)

    return Endpoint(current_url, current_token, of_home)


def _check(url: str) -> None:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query:
        raise ConfigurationError(f"{url!r} is no server's address; write https://HOST or "
                                 "http://HOST:PORT, without a query")


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _url_of(home: Path) -> str:
    try:
        ready = json.loads(_read(home / "controller.json") or "{}")
    except ValueError:
        return ""
    url = ready.get("restUrl", "") if isinstance(ready, dict) else ""
    return url.rstrip("/") if isinstance(url, str) else ""


def _require_url(home: Path) -> str:
    url = _url_of(home)
    if not url:
        raise ConfigurationError(
            f"no server is named, and no control plane has left its address in "
            f"{home / 'controller.json'}: run `starling up`, or set STARLING_SERVER")
    return url
