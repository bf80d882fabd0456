"""Where the node is and who asks: from arguments, the environment, and a token file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple, Optional, Union

from ._errors import TOKEN_HINT, Invalid, Unauthorized
from ._http import DEFAULT_URL, Address, address

# The API's limit for a token file.
MAX_TOKEN_FILE_BYTES = 64 * 1024
OWNER = "owner"


class Settings(NamedTuple):
    to: Address
    token: Optional[str]
    timeout: float


def settings(
    url: Optional[str], token: Optional[str], token_file: "Optional[Union[str, os.PathLike[str]]]", timeout: float
) -> Settings:
    """What is given wins over the environment."""
    if not timeout > 0:
        raise Invalid("invalid", "timeout: expected a number of seconds above 0", {"field": "timeout"})
    if token is None and token_file is not None:
        token = token_of(Path(token_file))
    token = token or os.environ.get("OSTLER_TOKEN") or None
    return Settings(address(url or os.environ.get("OSTLER_SERVER") or DEFAULT_URL), token, timeout)


def token_of(path: Path) -> str:
    """The token of the owner, from lines ``NAME full|read TOKEN``."""
    try:
        with path.open("rb") as file:
            text = file.read(MAX_TOKEN_FILE_BYTES).decode("utf-8", "replace")
    except OSError as error:
        message = f"the token file {path} cannot be read: {error.strerror}. `ostler up` writes it beside its store; or {TOKEN_HINT}"
        raise Unauthorized("no_token", message, {"field": "token_file"}) from error
    for words in map(str.split, text.splitlines()):
        if len(words) == 3 and words[0] == OWNER:
            return words[2]
    raise Unauthorized("no_token", f"the token file {path} has no line for {OWNER}", {"field": "token_file"})
