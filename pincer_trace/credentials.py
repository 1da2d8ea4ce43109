"""Which environment variables hold a credential, told by their name and by the shape of their value.

A program that lacks an honest variable breaks, so what is listed is what is known: names end in what they hold
(`NPM_TOKEN`, `DB_PASSWORD`), and well-known tokens begin with who gave them out (`ghp_`, `sk-ant-`).
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_ENDINGS = (
    b"TOKEN", b"TOKENS", b"SECRET", b"SECRETS", b"PASSWORD", b"PASSWORDS", b"PASSWD", b"PASSPHRASE", b"PASSCODE",
    b"SSHPASS", b"CREDENTIAL", b"CREDENTIALS", b"CREDS", b"APIKEY", b"APIKEYS", b"SECRETKEY", b"ACCESSKEY",
    b"PRIVATEKEY",
)  # fmt: skip
_KEYS = frozenset(  # of what a key is one that others must not have; `GPG_KEY` and `CACHE_KEY` are names of something
    b"API APP ACCESS ACCOUNT ADMIN AUTH CRYPT DEPLOY ENCRYPT ENCRYPTION HMAC JWT LICENSE MASTER PRIVATE ROLE SECRET "
    b"SERVICE SESSION SHARED SIGNING STORAGE SUBSCRIPTION".split()
)
_AFTER = {  # a short last word, and what stands before it when it means a credential; None: anything
    b"PASS": None,
    b"PWD": None,  # not PWD itself
    b"PAT": frozenset(b"ADO AZURE DEVOPS DOCKER DOCKERHUB EXT GH GIT GITHUB GITLAB".split()),
}
_WHOLE = frozenset(
    b"AWS_BEARER_TOKEN_BEDROCK BASIC_AUTH COMPOSER_AUTH DOCKER_AUTH_CONFIG KAGGLE_KEY NPM_CONFIG_AUTH "
    b"REDISCLI_AUTH".split()
)
_LEADING = (b"POETRY_PYPI_TOKEN_",)  # the rest is the name of a registry
_QUALIFIERS = frozenset(
    b"B64 BASE BASE64 DEV HEX JSON LIVE NEW OLD PEM PROD PRODUCTION RO RW SANDBOX STAGING TEST V VALUE".split()
)
_DIGITS = b"0123456789"
_PUBLIC = frozenset((b"PUBLIC", b"PUBLISHABLE"))
_SETTINGS = frozenset(b"0 1 TRUE FALSE YES NO ON OFF NONE NULL NEVER ALWAYS AUTO DEFAULT REQUIRED".split())
_REFERENCES = (b"$", b"<", b"{{", b"%(", b"op://", b"***", b"[MASKED]")  # somebody puts the value there later
_TOKENS = (  # how it begins, how long it is at least
    (b"ghp_", 36), (b"gho_", 36), (b"ghu_", 36), (b"ghs_", 36), (b"ghr_", 36), (b"github_pat_", 30),
    (b"glpat-", 20), (b"gldt-", 20), (b"glrt-", 20), (b"glptt-", 20), (b"gloas-", 20),
    (b"sk-", 24), (b"sk_live_", 20), (b"sk_test_", 20), (b"rk_live_", 20), (b"rk_test_", 20), (b"whsec_", 20),
    (b"xoxb-", 20), (b"xoxp-", 20), (b"xoxa-", 20), (b"xoxr-", 20), (b"xoxs-", 20), (b"xoxe.", 20), (b"xapp-", 20),
    (b"npm_", 40), (b"pypi-AgE", 40), (b"hf_", 30), (b"AIza", 39), (b"ya29.", 30), (b"GOCSPX-", 24), (b"SG.", 40),
    (b"dop_v1_", 40), (b"doo_v1_", 40), (b"hvs.", 24), (b"hvb.", 24), (b"dckr_pat_", 24), (b"shpat_", 32),
    (b"lin_api_", 32), (b"figd_", 30), (b"tskey-", 24), (b"AGE-SECRET-KEY-1", 40), (b"gsk_", 40), (b"xai-", 40),
    (b"r8_", 38), (b"pplx-", 40), (b"dapi", 36), (b"ATATT3", 40), (b"PMAK-", 40), (b"rubygems_", 40),
)  # fmt: skip
_BEGINNINGS = tuple(start for start, _ in _TOKENS)
_AMAZON = (b"AKIA", b"ASIA")  # and sixteen more
_HOOKS = (b"://hooks.slack.com/services/", b"://discord.com/api/webhooks/", b"://discordapp.com/api/webhooks/")
_PAIRS = (
    b"password=",
    b"pwd=",
    b"accountkey=",
    b"sharedaccesskey=",
)  # of connection strings: `Server=...;Password=...`
_SCHEMES = (b"bearer ", b"basic ")
_APART = bytes.maketrans(b"\t\r\n,;=\"'`()[]{}<>|", b" " * 18)
_WORDS = bytes(c if chr(c).isalnum() and c < 128 else 32 for c in range(256))


def is_credential(name: bytes, value: bytes) -> bool:
    """Whether the variable `name` with this value is to be kept from a program that was not given it by name."""
    value = value.strip()
    words = [_bare(word) for word in name.upper().translate(_WORDS).split()]
    if not value or not _PUBLIC.isdisjoint(words):
        return False
    return _has_shape(value) or (_is_named_so(words) and _may_be_one(value, words))


def _bare(word: bytes) -> bytes:
    """Without the number behind it, in which `TOKEN2` and `DB_PASSWORD_V2` differ from the first ones."""
    return word if word in _QUALIFIERS else word.rstrip(_DIGITS) or word


def _is_named_so(words: list[bytes]) -> bool:
    whole = b"_".join(words)
    if whole in _WHOLE or whole.startswith(_LEADING):
        return True
    end = len(words)
    while end and (words[end - 1] in _QUALIFIERS or words[end - 1].isdigit()):
        end -= 1
    last, before = words[end - 1 : end] or [b""], words[max(0, end - 2) : max(0, end - 1)]
    if last[0].endswith(_ENDINGS):
        return True
    if not before:
        return False
    if last[0] in (b"KEY", b"KEYS"):
        return before[0] in _KEYS
    if last[0] in _AFTER:
        after = _AFTER[last[0]]
        return after is None or before[0] in after
    return False


def _may_be_one(value: bytes, words: list[bytes]) -> bool:
    """A switch, a number, a file and a placeholder are none. Files are judged when they are opened."""
    if value.upper() in _SETTINGS or value.startswith((*_REFERENCES, b"~/", b"./", b"../", b"file:")):
        return False
    if value.startswith(b"/") and _exists(value):
        return False
    if value.replace(b"_", b"").replace(b".", b"").isdigit():  # MAX_TOKENS=8192
        return not words[-1].endswith((b"TOKEN", b"TOKENS", b"KEY", b"KEYS"))
    return True


def _exists(path: bytes) -> bool:
    import os

    return os.path.lexists(path)


def _has_shape(value: bytes) -> bool:
    if b"PRIVATE KEY-----" in value or b"PRIVATE KEY BLOCK-----" in value:
        return True
    if any(hook in value for hook in _HOOKS) or _in_url(value):
        return True
    if any(_is_token(piece) for piece in value.translate(_APART).split()):
        return True
    lower = value.lower()
    return any(
        len(_piece_after(value, lower, scheme)) >= length
        for schemes, length in ((_SCHEMES, 16), (_PAIRS if b";" in value else (), 1))
        for scheme in schemes
    )


def _piece_after(value: bytes, lower: bytes, what: bytes) -> bytes:
    """The word after `what`, empty for a placeholder."""
    at = lower.find(what)
    if at < 0:
        return b""
    rest = value[at + len(what) :].lstrip()
    if rest.startswith(_REFERENCES):
        return b""
    return (rest.translate(_APART).split() or [b""])[0] if not rest[:1].isspace() else b""


def _is_token(piece: bytes) -> bool:
    if piece.startswith(_BEGINNINGS) and any(
        piece.startswith(start) and len(piece) >= length for start, length in _TOKENS
    ):
        random = max(map(len, piece.split(b"-"))) >= 12 and any(48 <= c < 58 for c in piece)
        return random and b"/" not in piece
    if piece.startswith(_AMAZON):
        return len(piece) == 20 and piece.isalnum() and piece.isupper()
    parts = piece.split(b".")
    return piece.startswith(b"eyJ") and len(parts) in (3, 5) and min(map(len, parts[:2])) >= 10  # a JSON Web Token


def _in_url(value: bytes) -> bool:
    """`scheme://user:password@host`, anywhere in the value; a user alone counts where it is a token."""
    for rest in value.split(b"://")[1:]:
        authority = rest
        for end in (b"/", b"?", b"#", b" ", b"\n", b'"', b"'", b","):
            authority = authority.partition(end)[0]
        user, at, _ = authority.rpartition(b"@")
        if at:
            first, colon, password = user.partition(b":")
            if _is_token(first) or (colon and password and not password.startswith(_REFERENCES)):
                return True
    return False


def named(patterns: Iterable[str]) -> Callable[[bytes], bool]:
    """Whether a variable is one of `patterns`: names, of which a `*` at the end stands for any rest."""
    exact = {pattern.encode("utf-8", "surrogateescape") for pattern in patterns}
    starts = tuple(pattern[:-1] for pattern in exact if pattern.endswith(b"*"))
    return lambda name: name in exact or name.startswith(starts)
