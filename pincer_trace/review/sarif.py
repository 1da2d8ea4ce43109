"""Refusals as SARIF 2.1.0, the form in which CI systems take what tools found.

A result is one effect on one name that was refused, with how often. Its rule is ours: the line of the profile, or
`built-in`. What lies in the work tree is located by its name there; peers and other places have a logical location too.
"""

from __future__ import annotations

import datetime
import hashlib
from urllib.parse import quote_from_bytes

from pincer_trace import __version__, paths
from pincer_trace.ledger.read import raw
from pincer_trace.paths import is_inside
from pincer_trace.review.report import number, text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from pincer_trace.ledger.read import Record
    from pincer_trace.review.report import Report

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_ROOT = "%SRCROOT%"
_MOST = 5000  # results: no viewer takes more
_TEAM = 4
_NO_RULE = "no-rule"


class Refusals:
    """Give it every record; those that were refused are kept, equal ones together."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, ...], Record] = {}
        self.more = 0

    def add(self, record: Record) -> None:
        """One more record."""
        if record["kind"] not in ("denied", "failure") or record.get("native"):
            return
        extra = record.get("extra") or {}
        names = ("effect", "path", "verdict", "rule", "reason", "code")
        key = *(text(record.get(name)) for name in names), text(extra.get("to"))
        found = self._found.get(key)
        if found is None:
            if len(self._found) >= _MOST:
                self.more += 1
                return
            found = self._found[key] = dict(zip((*names, "to"), key, strict=True))
            found |= {"count": 0, "by": [], "record": record["seq"], "expected": record.get("expected") is True}
        found["count"] += 1
        exe = text(record.get("exe"))
        if exe and exe not in found["by"] and len(found["by"]) < _TEAM:
            found["by"].append(exe)

    def __iter__(self) -> Iterator[Record]:
        return iter(self._found.values())


def document(report: Report, refusals: Refusals) -> Record:
    """The whole document."""
    rules: dict[str, Record] = {}
    results = []
    for each in refusals:
        name = each["rule"] or _NO_RULE
        if name not in rules:
            words = paths.display(each["reason"].partition(": ")[0] or name, 1000)
            rules[name] = {"id": paths.display(name), "shortDescription": {"text": words}}
        results.append(_result(each, name, list(rules).index(name), report.workspace))
    session = report.session
    invocation: Record = {
        "executionSuccessful": session.get("exit") == 0,
        "startTimeUtc": _time(session["started"]),
        "properties": {"session": text(session.get("id")), "profile": text(session.get("profile")),
                       "state": text(session.get("state")), "resultsLeftOut": refusals.more},
    }  # fmt: skip
    if isinstance(session.get("exit"), int):
        invocation["exitCode"] = session["exit"]
    if isinstance(session.get("ended"), int | float):
        invocation["endTimeUtc"] = _time(session["ended"])
    driver = {"name": "pincer-trace", "version": __version__, "rules": list(rules.values())}
    run: Record = {"tool": {"driver": driver}, "invocations": [invocation], "results": results}
    if report.workspace:
        run["originalUriBaseIds"] = {_ROOT: {"uri": _uri(raw(report.workspace).rstrip(b"/") + b"/")}}
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def _result(each: Record, rule: str, index: int, workspace: str) -> Record:
    where = paths.named(raw(each["path"]), 400)
    to = f" -> {paths.named(raw(each['to']), 400)}" if each["to"] else ""
    words = f"{each['effect']} {where}{to}: {paths.display(each['reason'], 1000) or each['code']}"
    print_of = "\0".join((each["effect"], each["path"], each["to"], each["code"]))
    return {
        "ruleId": paths.display(rule),
        "ruleIndex": index,
        "level": "note" if each["expected"] else "error" if each["verdict"] == "deny" else "warning",
        "message": {"text": words},
        "locations": [_location(raw(each["path"]), raw(workspace))],
        "occurrenceCount": number(each["count"]),
        "partialFingerprints": {"effect/v1": hashlib.sha256(print_of.encode("utf-8", "surrogatepass")).hexdigest()},
        "properties": {
            "effect": each["effect"], "verdict": each["verdict"], "code": each["code"], "record": each["record"],
            "by": [paths.display(exe) for exe in each["by"]],
        },
    }  # fmt: skip


def _location(path: bytes, workspace: bytes) -> Record:
    if not path.startswith(b"/") or path.startswith(b"//"):
        return {"logicalLocations": [{"fullyQualifiedName": paths.display(path) or "unknown", "kind": "resource"}]}
    if workspace and path != workspace and is_inside(path, workspace):
        relative = path[len(workspace.rstrip(b"/")) + 1 :]
        artifact = {"uri": quote_from_bytes(relative), "uriBaseId": _ROOT}
    else:
        artifact = {"uri": _uri(path)}
    return {"physicalLocation": {"artifactLocation": artifact, "region": {"startLine": 1}}}


def _uri(path: bytes) -> str:
    return "file://" + quote_from_bytes(path)


def _time(moment: float) -> str:
    found = datetime.datetime.fromtimestamp(moment, datetime.UTC)
    return found.strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
