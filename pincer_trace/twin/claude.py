"""One question to Claude through the `anthropic` SDK, and whatever goes wrong as one line without the key.

The answer is asked for as structured output, which every model since 4.5 has: the newest ones refuse forced tool calls,
and sampling parameters too. `effort` is low where the model knows it, since a call is held meanwhile. The SDK's own
retries are off: it obeys a `retry-after` of any length.
"""

from __future__ import annotations

import os
import re
import time

from pincer_trace.paths import display

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

DEFAULT_MODEL = "claude-haiku-5-5"  # the quickest current one; `--model` names another
KEY = "ANTHROPIC_API_KEY"
_ROOM = 2048  # tokens of an answer, with what a model thinks before it
_PAUSE = 0.5  # seconds before the one retry
_SAID = 200
_NO_KEY = re.compile(r"[^!-~]")
_LIKE_A_KEY = r"sk-ant-[\w-]*"


class Failure(Exception):
    """There is no answer; the message says why. `status` is that of HTTP, 0 without one.

    `again` is whether another try may go better; `outage` whether other questions will fare no better for now.
    """

    def __init__(self, reason: str, *, status: int = 0, again: bool = False, outage: bool = True) -> None:
        super().__init__(reason)
        self.status = status
        self.again = again
        self.outage = outage
        self.wait = _PAUSE

    @property
    def permanent(self) -> bool:
        """Whether the key itself was not accepted."""
        return self.status in (401, 403)


class Reply:
    """What came back: the text of the answer, and the tokens that it cost. Without a text, `problem` says why."""

    __slots__ = ("input_tokens", "output_tokens", "problem", "text")

    def __init__(self, text: str, problem: str, input_tokens: int, output_tokens: int) -> None:
        self.text = text
        self.problem = problem
        self.input_tokens = input_tokens
        self.output_tokens = output_tokens


class Client:
    """A connection of one thread. Raises ImportError without the SDK, Failure where the base URL cannot be used."""

    def __init__(self, key: str, model: str, *, timeout: float, pause: Callable[[float], object] = time.sleep) -> None:
        import anthropic

        self._anthropic = anthropic
        self._secret = re.compile(f"{re.escape(key)}|{_LIKE_A_KEY}", re.IGNORECASE)
        self._model = model
        self._timeout = timeout
        self._pause = pause
        if _NO_KEY.search(key):
            raise Failure(f"{KEY} has characters that no key has (a space, or a line break?)")
        try:
            self._sdk = anthropic.Anthropic(api_key=key, max_retries=0, timeout=timeout)
            self._sdk.auth_token = None  # older releases would send that of the environment too
        except Exception as error:  # noqa: BLE001 - it says nothing of what it raises, and names the key
            raise Failure(f"ANTHROPIC_BASE_URL cannot be used: {type(error).__name__}") from None
        url = self._sdk.base_url
        if url.scheme not in ("http", "https") or not url.host:
            raise Failure("ANTHROPIC_BASE_URL is no http or https address")
        self.where = display(f"{url.scheme}://{url.host}" + (f":{url.port}" if url.port else ""), _SAID)

    def close(self) -> None:
        """Close the connections."""
        self._sdk.close()

    def ask(self, system: str, question: str, schema: dict[str, object], *, effort: bool) -> Reply:
        """The reply, after at most one retry and about `timeout` seconds. Raises Failure."""
        deadline = time.monotonic() + self._timeout
        try:
            return self._try(system, question, schema, effort, self._timeout)
        except Failure as failure:
            left = deadline - time.monotonic() - failure.wait
            if not failure.again or left <= 0:
                raise
            self._pause(failure.wait)
        return self._try(system, question, schema, effort, left)

    def _try(self, system: str, question: str, schema: dict[str, object], effort: bool, timeout: float) -> Reply:
        config: Any = {"format": {"type": "json_schema", "schema": schema}}
        if effort:
            config["effort"] = "low"
        try:
            message = self._sdk.messages.create(
                model=self._model,
                max_tokens=_ROOM,
                system=system,
                messages=[{"role": "user", "content": question}],
                output_config=config,
                timeout=timeout,
            )
            return self._read(message)
        except Failure:
            raise
        except Exception as error:  # noqa: BLE001 - the SDK lets others through, whose words may hold the key
            raise self._failure(error, timeout) from None

    def _read(self, message: object) -> Reply:
        """The SDK checks no types: what it calls a message may be anything that was sent."""
        if not isinstance(message, self._anthropic.types.Message):
            raise Failure(f"what {self.where} sends is no message of the Messages API")
        used = getattr(message, "usage", None)
        names = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
        tokens = sum(_count(getattr(used, name, 0)) for name in names), _count(getattr(used, "output_tokens", 0))
        if message.stop_reason == "refusal":
            return Reply("", "the model refuses to answer", *tokens)
        if message.stop_reason != "end_turn":
            return Reply("", f"the answer ended early ({self._clean(str(message.stop_reason))})", *tokens)
        blocks: Any = message.content if isinstance(message.content, list) else []
        kinds = [getattr(block, "type", None) for block in blocks]
        texts = [block.text for block, kind in zip(blocks, kinds, strict=True) if kind == "text"]
        thought = sum(kind in ("thinking", "redacted_thinking") for kind in kinds)
        if len(texts) != 1 or len(texts) + thought != len(kinds) or not isinstance(texts[0], str):
            return Reply("", "malformed answer: it is not one text", *tokens)
        return Reply(texts[0], "", *tokens)

    def _failure(self, error: Exception, timeout: float) -> Failure:
        sdk = self._anthropic
        if isinstance(error, sdk.APITimeoutError):
            return Failure(f"no answer from {self.where} within {timeout:.3g} s")
        if isinstance(error, sdk.APIConnectionError):
            return Failure(f"{self.where} cannot be reached: {_cause(error)}", again=True)
        if not isinstance(error, sdk.APIStatusError):
            return Failure(f"what {self.where} sends cannot be read: {type(error).__name__}")
        status = error.status_code
        if status == 401:
            return Failure(f"{self.where} does not accept the key (401)", status=status)
        said = self._clean(_message(error.body))
        words = {
            403: "does not permit this with the key",
            404: f"does not know the model {self._clean(self._model)}, or is no Messages API",
            429: "limits the rate of questions",
        }.get(status, "failed" if status >= 500 else "does not take the question")
        failure = Failure(
            f"{self.where} {words} ({status}{': ' + said if said else ''})",
            status=status,
            again=status in (408, 409, 429) or status >= 500,
        )
        failure.wait = max(_PAUSE, _seconds(error.response.headers.get("retry-after")))
        return failure

    def _clean(self, text: str) -> str:
        """Foreign words for a person, without the key."""
        return display(self._secret.sub("[key]", text), _SAID)


def given_key() -> str:
    """The key of the supervisor's own environment; empty without one."""
    return os.environ.get(KEY, "").strip()


def _count(value: object) -> int:
    return value if type(value) is int and value > 0 else 0


def _message(body: object) -> str:
    """The words in the body of an error."""
    error = body.get("error") if isinstance(body, dict) else None
    words = error.get("message") if isinstance(error, dict) else None
    return words if isinstance(words, str) else ""


def _seconds(header: str | None) -> float:
    try:
        return float(header or 0)
    except ValueError:
        return _PAUSE


def _cause(error: BaseException) -> str:
    """What the system said, at the end of the chain of causes; the words between may hold the key."""
    found = ""
    while error.__cause__ or error.__context__:
        error = error.__cause__ or error.__context__  # type: ignore[assignment]
        if isinstance(error, OSError):
            found = getattr(error, "verify_message", "") or error.strerror or found
    return display(found or type(error).__name__, _SAID)
