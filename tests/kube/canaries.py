# SPDX-License-Identifier: Apache-2.0
"""Canaries: the forms in which a secret would show where it must not, and the search for them.

    forms = canaries.forms({"data-plane": b"0f3a...", "worker.key": b"-----BEGIN ..."})
    self.assertEqual([], canaries.sightings(forms, {"log of the worker": text, ...}))
"""
import base64
import re

SHORTEST = 24  # characters; what is shorter may be there by chance


def forms(secrets):
    """Texts that give a secret away, each with the secret's name; certificates are no secret."""
    found = {}
    for name, value in secrets.items():
        if b"-----BEGIN CERTIFICATE" in value:
            continue
        for form in _forms_of(value):
            assert len(form) >= SHORTEST, f"{name} is too short to be searched for"
            found[form] = name
    return found


def _forms_of(value):
    yield _base64(value)
    if b"PRIVATE KEY-----" in value:
        lines = value.decode().splitlines()
        body = [line for line in lines if not line.startswith("-----")]
        yield from (line for line in body if len(line) >= SHORTEST)
        yield from _binary(base64.b64decode("".join(body)))
    elif re.fullmatch(rb"[0-9a-fA-F]{32,}", value):
        yield value.decode().lower()
        yield from _binary(bytes.fromhex(value.decode()))
    else:
        yield from _binary(value)


def _binary(value):
    yield value.hex()
    yield _base64(value)


def _base64(value):
    return base64.b64encode(value).decode().rstrip("=")


def sightings(canaries, places):
    """(place, secret) for each secret that one of the texts in `places` shows."""
    return sorted({(place, name) for place, text in places.items()
                   for form, name in canaries.items() if form in text or form.upper() in text})
