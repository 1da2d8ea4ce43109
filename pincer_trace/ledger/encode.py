r"""JSON text for records, without the `json` package (10 ms of imports) and without its generic encoder.

**Bytes.** Paths, executables and arguments are bytes. They become text by UTF-8 with `surrogateescape` (PEP
383) and every character outside printable ASCII is escaped: byte 0xFF reads `"\udcff"` in a record. So a line
is printable ASCII only, whatever a worker names its files, and the exact bytes come back by
`json.loads(line)["path"].encode("utf-8", "surrogateescape")` (`os.fsencode`, under a UTF-8 locale).
"""

from __future__ import annotations

from _json import encode_basestring_ascii as quote  # the C function behind `json.dumps(text)`

__all__ = ["encode", "quote", "quote_bytes"]


def quote_bytes(raw: bytes) -> str:
    """A JSON string for foreign bytes; see the module's text."""
    return quote(raw.decode("utf-8", "surrogateescape"))


def encode(value: object) -> str:
    """JSON text of None, bool, int, float, str, bytes, and lists, tuples, dicts of them; else `TypeError`."""
    if value is None:
        return "null"
    if value is True:
        return "true"
    if value is False:
        return "false"
    if isinstance(value, bytes):
        return quote_bytes(value)
    if isinstance(value, str):
        return quote(value)
    if isinstance(value, int):
        return int.__repr__(value)
    if isinstance(value, float):
        if value - value != 0.0:  # infinity or not a number: JSON has neither
            raise TypeError(f"no JSON for {value}")
        return float.__repr__(value)
    if isinstance(value, (list, tuple)):
        return "[" + ",".join([encode(item) for item in value]) + "]"
    if isinstance(value, dict):
        return "{" + ",".join([f"{_key(key)}:{encode(item)}" for key, item in value.items()]) + "}"
    raise TypeError(f"no JSON for {type(value).__name__}")


def _key(key: object) -> str:
    if not isinstance(key, str):
        raise TypeError(f"a JSON key must be text, not {type(key).__name__}")
    return quote(key)
