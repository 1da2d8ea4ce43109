"""The same for the Gemini API: which turn is served follows from the function responses that the request carries."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from messages_api import Block, MessagesApi

MODEL = "gemini-2.5-flash"


def say(text: str) -> Block:
    """A part that is text."""
    return {"text": text}


def call(tool: str, **arguments: Any) -> Block:
    """A part that calls a function."""
    return {"functionCall": {"name": tool, "args": arguments}}


def responses(request: dict[str, Any]) -> list[dict[str, Any]]:
    """What the functions answered, as a request carries it, in order."""
    parts = [part for content in request["contents"] for part in content["parts"]]
    return [part["functionResponse"]["response"] for part in parts if "functionResponse" in part]


class GeminiApi(MessagesApi):
    """`with GeminiApi(turns) as api:`, as `MessagesApi`, for `MODEL`; a turn is a list of parts."""

    path = f"/v1beta/models/{MODEL}:streamGenerateContent"

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        done = len(responses(request))
        turn = self.turns[done] if done < len(self.turns) else [say("The script has no more turns.")]
        content = {"role": "model", "parts": list(turn)}
        usage = {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}
        return {"candidates": [{"content": content, "finishReason": "STOP", "index": 0}], "usageMetadata": usage}

    def stream(self, message: dict[str, Any]) -> Iterator[dict[str, Any]]:
        yield message

    def is_streamed(self, request: dict[str, Any]) -> bool:
        return True  # the path says so
