"""Only this page may drive the server: `Host` and `Origin` are checked, and answers say what a browser may do.

A foreign web page can make a browser send requests to 127.0.0.1, under its own name if it rebinds that name to this
address. The first kind has a foreign `Origin` or `Sec-Fetch-Site`, the second a foreign `Host`.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Mapping

from mufuru.experiments.explorer.limits import Refused

LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-cache",
}


def check(headers: Mapping[str, str], served: str) -> None:
    """Refuse a request that another page could have made; `served` is the address that was asked to listen on."""
    host = headers.get("host", "")
    if not allowed(name_of(host), served):
        raise Refused(421, f"this server answers to its own address alone, got the Host {host[:100]!r}")
    origin = headers.get("origin")
    if origin is not None and origin.lower() != f"http://{host.lower()}":
        raise Refused(403, f"this server answers to its own page alone, got the Origin {origin[:100]!r}")
    if headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
        raise Refused(403, "this server answers to its own page alone: open its address instead of following a link")


def allowed(name: str, served: str) -> bool:
    """Whether a server that listens on `served` goes by this name. One that listens everywhere goes by every plain
    address, since only names can be rebound, and by the machine's own name.
    """
    if name in LOOPBACK or name == served.lower():
        return True
    return is_everywhere(served) and (_is_address(name) or name == socket.gethostname().lower())


def is_everywhere(served: str) -> bool:
    return _is_address(served) and ipaddress.ip_address(served).is_unspecified


def name_of(host: str) -> str:
    """The name in a Host header, without its port; "" where there is none."""
    name, _, port = host.lower().rpartition(":")
    if not (name and port.isdecimal()):
        name = host.lower()
    return name.strip("[]")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
