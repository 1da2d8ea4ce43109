"""PEM files and OpenSSH keys: what kind of thing each block is, and one handle for what is in it."""

from __future__ import annotations

import re

from pincer_trace.plaintext.pieces import Line, Piece, line_end

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_BEGIN = re.compile(rb"^-----BEGIN ([A-Z0-9 .]{1,40})-----(?=[ \t]*\r?$)", re.MULTILINE)
_WORDS = frozenset(
    b"RSA DSA EC DH ED25519 OPENSSH SSH2 PGP ANY NEW TRUSTED X509 X9.42 ENCRYPTED PRIVATE PUBLIC KEY CERTIFICATE "
    b"REQUEST PARAMETERS CRL PKCS7 PKCS8 CMS SIGNATURE SIGNED MESSAGE BLOCK".split()
)


def lines(content: bytes, limit: int) -> Iterator[Line]:
    """Of each block its first line, its body and its last line."""
    at = 0
    while (begin := _BEGIN.search(content, at, max(at, limit))) is not None:
        body = line_end(content, begin.end())[1]
        last = b"-----END " + begin[1] + b"-----"
        found = content.find(b"\n" + last, body - 1)
        if found < 0 or not set(begin[1].split()) <= _WORDS:
            return
        start, end = found + 1, line_end(content, found + 1)[1]
        stop = max(body, found - 1 if content[found - 1 : found] == b"\r" else found)
        yield Line([Piece(*begin.span(), begin[0])], body)
        yield Line([Piece(body, stop, None)], start, field=begin[1].lower())
        yield Line([Piece(start, start + len(last), last)], end)
        at = end
