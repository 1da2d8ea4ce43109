"""Judging git's configuration by content: which keys changed, and what is dangerous about them (hazards P52, P86).

Syntax: git-config(1), "CONFIGURATION FILE". Keys are `section.variable` or `section.subsection.variable`,
section and variable in lower case. What this reader does not understand counts as unknown, and unknown is
never allowed.
"""

from __future__ import annotations

MAXIMUM_BYTES = 1 << 20
_SPACE = " \t\r\f\v"

RUNS = "git runs what it names"
LEADS = "git takes files, hooks or more settings from where it says"
TRUSTS = "it sends the user's traffic and credentials elsewhere, or makes git trust another peer"

# Sections each of whose keys counts.
_SECTIONS = {
    **dict.fromkeys(
        (
            "alias", "browser", "credential", "difftool", "filter", "gpg", "guitool", "hook", "imap", "instaweb", "man",
            "mergetool", "pager", "sendemail", "web",
        ),
        RUNS,
    ),
    **dict.fromkeys(("include", "includeif"), LEADS),
    **dict.fromkeys(("protocol", "safe", "url"), TRUSTS),
}  # fmt: skip
_KEYS = {
    **dict.fromkeys(
        (
            "core.alternaterefscommand", "core.askpass", "core.editor", "core.fsmonitor", "core.gitproxy",
            "diff.guitool", "diff.tool", "merge.guitool", "merge.tool", "svn.authorsprog",
            "core.pager", "core.sshcommand", "diff.external", "gc.recentobjectshook", "help.browser",
            "interactive.difffilter", "sequence.editor", "uploadpack.packobjectshook",
        ),
        RUNS,
    ),
    **dict.fromkeys(("core.attributesfile", "core.hookspath", "core.worktree", "init.templatedir"), LEADS),
}  # fmt: skip
# (section, variable) of keys that carry a subsection
_DRIVERS = frozenset(
    {
        ("diff", "command"), ("svn-remote", "authors-prog"),
        ("diff", "textconv"), ("merge", "driver"),
        ("remote", "receivepack"), ("remote", "uploadpack"), ("remote", "vcs"), ("submodule", "update"),
        ("tar", "command"), ("trailer", "cmd"), ("trailer", "command"),
    }
)  # fmt: skip
# what `http.*` keys end with that send the user's traffic elsewhere, or trust another peer
_HTTP = (
    "proxy", "sslverify", "cookiefile", "extraheader", "sslcert", "sslkey", "sslcainfo", "sslcapath", "curloptresolve",
    "delegation",
)  # fmt: skip
# Values of dangerous keys that are not: a switch (git before 2.36 would run the programs `true` and `false`).
_SWITCH = frozenset({None, "true", "false"})
_UPDATES = frozenset({"checkout", "rebase", "merge", "none"})


def danger(key: str) -> str:
    """What a change of `key` can do, in words: make git run a program, or look elsewhere, or trust another; or ""."""
    section, _, rest = key.partition(".")
    found = _SECTIONS.get(section) or _KEYS.get(key)
    if found:
        return found
    variable = rest.rpartition(".")[2]
    if section == "lfs":
        return RUNS if rest.startswith(("customtransfer.", "extension.", "standalonetransferagent")) else ""
    if section == "http":
        return TRUSTS if variable.endswith(_HTTP) else ""
    if (section, variable) == ("remote", "proxy"):
        return TRUSTS
    return RUNS if (section, variable) in _DRIVERS else ""


def changed_keys(before: bytes, after: bytes) -> frozenset[str] | None:
    """The keys whose values differ between two configuration files; None when either cannot be read.

    A dangerous key that gets only harmless values is left out.
    """
    old, new = parse(before), parse(after)
    if old is None or new is None:
        return None
    return frozenset(
        key
        for key in old.keys() | new.keys()
        if old.get(key) != new.get(key) and not _is_harmless(key, new.get(key, []))
    )


def _is_harmless(key: str, values: list[str | None]) -> bool:
    """Whether these values of a key that may name a program name none."""
    section, _, rest = key.partition(".")
    if key == "core.fsmonitor" or section == "pager":
        return all((value.lower() if value else value) in _SWITCH for value in values)
    if section == "submodule" and rest.endswith(".update"):
        return all(value in _UPDATES for value in values)
    return False


def parse(content: bytes) -> dict[str, list[str | None]] | None:
    """A configuration file as key -> values in order (None: the key stands alone, which means true).

    Returns None for anything that is not surely understood.
    """
    if len(content) > MAXIMUM_BYTES or b"\0" in content:
        return None
    text = content.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "surrogateescape").replace("\r\n", "\n")
    found: dict[str, list[str | None]] = {}
    prefix = ""
    i = 0
    while i < len(text):
        c = text[i]
        if c in _SPACE or c == "\n":
            i += 1
        elif c in "#;":
            end = text.find("\n", i)
            i = len(text) if end < 0 else end + 1
        elif c == "[":
            header = _header(text, i + 1)
            if header is None:
                return None
            prefix, i = header
        else:
            start = i
            while i < len(text) and text[i].isascii() and (text[i].isalnum() or text[i] == "-"):
                i += 1
            if i == start or not prefix or not text[start].isalpha():
                return None
            key = prefix + text[start:i].lower()
            while i < len(text) and text[i] in _SPACE:
                i += 1
            if i < len(text) and text[i] == "=":
                value = _value(text, i + 1)
                if value is None:
                    return None
                found.setdefault(key, []).append(value[0])
                i = value[1]
            elif i == len(text) or text[i] in "\n#;":
                found.setdefault(key, []).append(None)
            else:
                return None
    return found


def _header(text: str, i: int) -> tuple[str, int] | None:
    """A section header from after its `[`: the prefix of its keys, and the index after `]`."""
    start = i
    while i < len(text) and text[i].isascii() and (text[i].isalnum() or text[i] in "-."):
        i += 1
    name = text[start:i].lower()
    if not name or i == len(text):
        return None
    if text[i] == "]":
        return name + ".", i + 1
    while i < len(text) and text[i] in _SPACE:
        i += 1
    if i == len(text) or text[i] != '"':
        return None
    i += 1
    subsection = []
    while i < len(text) and text[i] != '"':
        if text[i] == "\\":
            i += 1
        if i == len(text) or text[i] == "\n":
            return None
        subsection.append(text[i])
        i += 1
    if text[i : i + 2] != '"]':
        return None
    return f"{name}.{''.join(subsection)}.", i + 2


def _value(text: str, i: int) -> tuple[str, int] | None:
    """A value from after its `=`: the value, and the index after its line."""
    out: list[str] = []
    keep = 0  # how much of `out` is not trailing space
    quoted = False
    while i < len(text):
        c = text[i]
        if c == "\n":
            break
        if c == "\\":
            following = text[i + 1 : i + 2]
            i += 2
            if following == "\n":
                continue
            escaped = {"n": "\n", "t": "\t", "b": "\b", "\\": "\\", '"': '"'}.get(following)
            if escaped is None:
                return None
            out.append(escaped)
            keep = len(out)
            continue
        i += 1
        if c == '"':
            quoted = not quoted
            keep = len(out)
        elif c in "#;" and not quoted:
            end = text.find("\n", i)
            i = len(text) if end < 0 else end
            break
        elif c in _SPACE and not quoted:
            if keep:
                out.append(c)
        else:
            out.append(c)
            keep = len(out)
    return None if quoted else ("".join(out[:keep]), i + 1)
