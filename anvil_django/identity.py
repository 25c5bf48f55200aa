"""Ids and metadata that a caller may choose."""

from __future__ import annotations

import os
import re
import time
import uuid
from collections.abc import Mapping
from typing import Any

from . import exactjson
from .errors import BadInputError, NotJSONError, TooLargeError

RUN_ID_LENGTH = 200
RUN_ID_PATTERN = r"[A-Za-z0-9][A-Za-z0-9._:@~+=,-]*"
"""What a run_id looks like: ASCII that needs no quoting in a URL path, a log line or a shell."""
IDEMPOTENCY_KEY_LENGTH = 200
METADATA_LIMIT = 16_000
NAME_LENGTH = 200


def new_run_id() -> str:
    """A time-ordered UUID (version 7, RFC 9562): ids of later runs sort later."""
    millis = time.time_ns() // 1_000_000
    random = int.from_bytes(os.urandom(10), "big")
    number = (millis & (1 << 48) - 1) << 80 | random
    number = number & ~(0xF << 76) | 0x7 << 76
    number = number & ~(0x3 << 62) | 0x2 << 62
    return str(uuid.UUID(int=number))


def check_run_id(run_id: Any) -> str:
    """The run_id as text.

    Raises:
        BadInputError: It is empty, too long, or has characters that do not fit a URL path.
    """
    text = ""
    if isinstance(run_id, (str, int, uuid.UUID)) and not isinstance(run_id, bool):
        # Python refuses to write out a number of thousands of digits.
        too_long = isinstance(run_id, int) and abs(run_id) >= 10**RUN_ID_LENGTH
        text = "9" * (RUN_ID_LENGTH + 1) if too_long else str(run_id)
    if not text:
        raise BadInputError("run_id must be a string, a whole number or a UUID, and not empty.")
    if len(text) > RUN_ID_LENGTH:
        raise BadInputError(f"run_id has {len(text)} characters; at most {RUN_ID_LENGTH} are allowed.")
    if not re.fullmatch(RUN_ID_PATTERN, text):
        raise BadInputError(
            f"run_id {text!r} may hold only ASCII letters, digits and . _ : @ ~ + = , - and starts with "
            "a letter or digit."
        )
    return text


def check_idempotency_key(key: str | None) -> str | None:
    """The key itself.

    Raises:
        BadInputError: It is empty or too long, or has characters that cannot be stored.
    """
    # MariaDB and MySQL take "a" and "a " for the same.
    if key is None or (
        isinstance(key, str)
        and 0 < len(key) <= IDEMPOTENCY_KEY_LENGTH
        and key.isprintable()
        and key == key.strip()
    ):
        return key
    raise BadInputError(
        f"An idempotency key has 1 to {IDEMPOTENCY_KEY_LENGTH} characters, all of them printable, "
        "and no space around them."
    )


def storable_name(name: Any) -> str:
    """A person's name, as every database keeps it in a column of ``NAME_LENGTH`` characters."""
    return exactjson.clean_text(str(name))[:NAME_LENGTH]


def check_metadata(metadata: Mapping[str, Any] | None) -> dict[str, Any]:
    """The metadata as it will read back from storage.

    Raises:
        BadInputError: It is not an object of JSON values.
        TooLargeError: It has more than ``METADATA_LIMIT`` characters.
    """
    if metadata is None:
        return {}
    if not isinstance(metadata, Mapping):
        raise BadInputError("metadata must be an object.")
    try:
        text = exactjson.dumps(exactjson.encode(dict(metadata), path="metadata"))
    except NotJSONError as exc:
        raise BadInputError(exc.message) from exc
    if len(text) > METADATA_LIMIT:
        raise TooLargeError(
            f"metadata has {len(text)} characters as JSON; at most {METADATA_LIMIT} are accepted."
        )
    stored: dict[str, Any] = exactjson.loads(text)
    return stored
