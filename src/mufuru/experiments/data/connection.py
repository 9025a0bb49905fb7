"""One answer of a server, with whatever happens on the way as one of two errors: try again, or try elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import mufuru

TIMEOUT = 30.0
"""Seconds without a byte until a connection counts as cut."""
PIECE = 1 << 16


class Refused(Exception):
    """An address does not give the file: the next one may."""


class Cut(Exception):
    """A connection ended too early: the next attempt may go on from there."""


def ask(address: str, begun: int) -> Any:
    """The answer of a server, asked for all that follows the first bytes; None if it has no more than those."""
    headers = {"User-Agent": f"mufuru/{mufuru.__version__}"} | ({"Range": f"bytes={begun}-"} if begun else {})
    try:
        return urlopen(Request(address, headers=headers), timeout=TIMEOUT)
    except HTTPError as error:
        error.close()
        if error.code == 416 and begun:
            return None
        again = error.code in (408, 429) or error.code >= 500
        raise (Cut if again else Refused)(f"HTTP {error.code} {error.reason}") from None
    except (OSError, HTTPException) as error:
        raise Cut(_why(error)) from None


def pieces(response: Any) -> Iterator[bytes]:
    """What comes, as it comes; an error of the disk is not one of the connection."""
    while True:
        try:
            piece: bytes = response.read1(PIECE)
        except (OSError, HTTPException) as error:
            raise Cut(_why(error)) from None
        if not piece:
            return
        yield piece


def _why(error: Exception) -> str:
    cause = error.reason if isinstance(error, URLError) else error
    if isinstance(cause, TimeoutError):
        return f"no answer within {TIMEOUT:g} seconds"
    return str(cause) or type(cause).__name__
