"""Answers to questions of the domain name system: every name has an address of this session. RFC 1035, 3596, 6761

Pure and total: any bytes are answered with bytes, or with b"" where they are not even a question.
"""

from __future__ import annotations

import struct

from pincer_trace.gateway.hosts import Hosts
from pincer_trace.kernel import inet
from pincer_trace.kernel.bare import socket

MOST = 4096  # bytes of a question that is looked at
_HEADER = struct.Struct(">6H")
_QUESTION = struct.Struct(">HH")
_RECORD = struct.Struct(">HHHIH")
_FORMERR, _SERVFAIL, _NXDOMAIN, _NOTIMP = 1, 2, 3, 4
_RESPONSE, _OPCODE, _WANTED, _AVAILABLE = 0x8000, 0x7800, 0x0100, 0x0080
_A, _PTR, _AAAA, _ANY = 1, 12, 28, 255
_INTERNET = 1
_QNAME = 0xC00C  # a pointer to the name in the question, which is at a fixed place
_LASTS = 60  # seconds
_FAMILY = {_A: socket.AF_INET, _AAAA: socket.AF_INET6}
_REVERSE = b".in-addr.arpa"


class _Malformed(Exception):
    """What is no question in one piece."""


def answer(question: bytes, hosts: Hosts) -> bytes:
    """The answer to one message; b"" where nothing is to be answered."""
    if len(question) < _HEADER.size:
        return b""
    number, flags, questions, answers, _, _ = _HEADER.unpack_from(question)
    if flags & _RESPONSE:
        return b""
    flags = _RESPONSE | flags & (_OPCODE | _WANTED) | _AVAILABLE
    if flags & _OPCODE:
        return _HEADER.pack(number, flags | _NOTIMP, 0, 0, 0, 0)
    try:
        if questions != 1 or answers or len(question) > MOST:
            raise _Malformed
        name, kind, group, end = _asked(question)
    except _Malformed:
        return _HEADER.pack(number, flags | _FORMERR, 0, 0, 0, 0)
    code, records = _found(name, kind, hosts) if group == _INTERNET else (_NXDOMAIN, [])
    head = _HEADER.pack(number, flags | code, 1, len(records), 0, 0)
    return head + question[_HEADER.size : end] + b"".join(records)


def _asked(question: bytes) -> tuple[bytes, int, int, int]:
    """The name, type and class that are asked for, and where the question ends. Raises _Malformed."""
    labels = []
    at = _HEADER.size
    while True:
        if at >= len(question) or at - _HEADER.size > 255:
            raise _Malformed
        size = question[at]
        at += 1
        if not size:
            break
        if size > 63 or at + size > len(question):  # a pointer points to nothing yet: the first name has none
            raise _Malformed
        labels.append(question[at : at + size])
        at += size
    if at + _QUESTION.size > len(question):
        raise _Malformed
    if any(b"." in label for label in labels):
        labels = [b""]  # the dot would be one of the name's own: no host
    kind, group = _QUESTION.unpack_from(question, at)
    return b".".join(labels), kind, group, at + _QUESTION.size


def _found(name: bytes, kind: int, hosts: Hosts) -> tuple[int, list[bytes]]:
    """A response code, and what is answered."""
    small = name.lower()
    if small.endswith((_REVERSE, b".ip6.arpa")):
        told = _told(small, hosts) if kind in (_PTR, _ANY) else b""
        return (0, [_record(_PTR, told)]) if told else (_NXDOMAIN, [])
    host = inet.host_name(name)
    if not host:
        return _NXDOMAIN, []
    records = []
    for each in (_A, _AAAA) if kind == _ANY else (kind,):
        if each in _FAMILY:
            address = hosts.address(host, _FAMILY[each])
            if not address:
                return _SERVFAIL, []
            records.append(_record(each, address))
    return 0, records


def _told(name: bytes, hosts: Hosts) -> bytes:
    """The name, as it is sent, that an address stands for whose bytes are in `name`, the last one first."""
    parts = name.removesuffix(_REVERSE).split(b".")
    if len(parts) != 4 or not all(part.isdigit() and len(part) < 4 and int(part) < 256 for part in parts):
        return b""
    host = hosts.name(bytes(int(part) for part in reversed(parts)))
    return b"".join(b"%c%b" % (len(label), label) for label in host.split(b".")) + b"\0" if host else b""


def _record(kind: int, data: bytes) -> bytes:
    return _RECORD.pack(_QNAME, kind, _INTERNET, _LASTS, len(data)) + data
