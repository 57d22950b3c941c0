"""TLS with a server whose certificate is known by its fingerprint."""

from __future__ import annotations

import hashlib
import re
import socket
import ssl
from typing import Any, Optional, cast

from .errors import DecampError


class FingerprintError(ssl.SSLError):
    """The server has another certificate than the expected one."""

    def __init__(self, shown: str, want: str) -> None:
        super().__init__(1, f"the server shows the certificate {shown}, want {want}")
        self.shown = shown
        self.want = want


def parse_fingerprint(text: str) -> str:
    """Return a SHA-256 fingerprint as AB:CD:…; colons and case of the text do not matter."""
    digits = text.replace(":", "").upper()
    if not re.fullmatch("[0-9A-F]{64}", digits):
        raise DecampError("invalid", f"{text!r} is not a SHA-256 fingerprint", "decamp serve prints its fingerprint when it starts")
    return ":".join(digits[i : i + 2] for i in range(0, 64, 2))


class PinnedContext(ssl.SSLContext):
    """A context that accepts one certificate, before anything is sent."""

    fingerprint: str

    def wrap_socket(self, sock: socket.socket, *args: Any, **kwargs: Any) -> ssl.SSLSocket:
        """Wrap the socket, and compare the certificate after the handshake."""
        kwargs["do_handshake_on_connect"] = True
        wrapped = super().wrap_socket(sock, *args, **kwargs)
        shown = hashlib.sha256(cast(bytes, wrapped.getpeercert(binary_form=True))).hexdigest()
        if shown != self.fingerprint.replace(":", "").lower():
            wrapped.close()
            raise FingerprintError(parse_fingerprint(shown), self.fingerprint)
        return wrapped

    def wrap_bio(self, *args: Any, **kwargs: Any) -> ssl.SSLObject:
        """Refuse connections whose certificate cannot be compared: those of asyncio and those through an HTTPS proxy."""
        raise ssl.SSLError(1, "a fingerprint is supported for synchronous connections without an HTTPS proxy")


def make_context(
    fingerprint: Optional[str], ca_file: Optional[str], cert: Optional[tuple[str, str]]
) -> ssl.SSLContext:
    """Return a context that accepts the certificate by its fingerprint; without one, by its CA."""
    try:
        return _load_context(fingerprint, ca_file, cert)
    except OSError as error:
        raise DecampError("invalid", f"the CA or the client certificate: {error}", "name PEM files that exist") from error


def _load_context(
    fingerprint: Optional[str], ca_file: Optional[str], cert: Optional[tuple[str, str]]
) -> ssl.SSLContext:
    """Return the context of make_context. A file that cannot be used is an OSError."""
    if fingerprint:
        pinned = PinnedContext(ssl.PROTOCOL_TLS_CLIENT)
        pinned.fingerprint = parse_fingerprint(fingerprint)
        pinned.check_hostname = False
        pinned.verify_mode = ssl.CERT_NONE  # wrap_socket compares the certificate
        context: ssl.SSLContext = pinned
    else:
        context = ssl.create_default_context(cafile=ca_file)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if cert:
        context.load_cert_chain(*cert)
    return context
