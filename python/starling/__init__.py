# SPDX-License-Identifier: Apache-2.0
"""Starling from Python: `Client` speaks REST (docs/how-to/python.md), `join` makes a loop of your
own a member of a job (starling.embed), `elastic`, `DiLoCo`, `shard_group`, `collective` and `save` a loop of
PyTorch (starling.torch).

Nothing is imported before it is used: what lies beside the client does not pay for it.
"""
from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starling.client import Client as Client
    from starling.embed import join as join
    from starling.errors import ApiError as ApiError
    from starling.errors import StarlingError as StarlingError

__version__ = "0.1.0"

# starling.torch's are not named above: who checks types need not have PyTorch.
__all__ = ["ApiError", "Client", "DiLoCo", "StarlingError", "collective", "elastic", "join", "save",
           "shard_group"]

_HOMES = {"ApiError": "starling.errors", "Client": "starling.client",
          "DiLoCo": "starling.torch", "StarlingError": "starling.errors", "collective": "starling.torch",
          "elastic": "starling.torch", "join": "starling.embed", "save": "starling.torch",
          "shard_group": "starling.torch"}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'starling' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
