"""The same for the Responses API: which turn is served follows from the calls whose outputs the request carries."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from messages_api import Block, MessagesApi


def say(text: str) -> Block:
    """A message of a turn."""
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}


def call(tool: str, **arguments: Any) -> Block:
    """A function call of a turn."""
    return {"type": "function_call", "name": tool, "arguments": json.dumps(arguments)}


def outputs(request: dict[str, Any]) -> list[str]:
    """The outputs of calls that a request carries, in order."""
    found = [item["output"] for item in request["input"] if item.get("type") == "function_call_output"]
    return [output if isinstance(output, str) else json.dumps(output) for output in found]


class ResponsesApi(MessagesApi):
    """`with ResponsesApi(turns) as api:`, as `MessagesApi`."""

    path = "/v1/responses"

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        done = len(outputs(request))
        turn = self.turns[done] if done < len(self.turns) else [say("The script has no more turns.")]
        number = next(self._count)
        items = [block | {"id": f"item_{number:04}_{index}"} for index, block in enumerate(turn)]
        for item in items:
            if item["type"] == "function_call":
                item["call_id"] = "call_" + item["id"]
        usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
        return {"id": f"resp_{number:04}", "object": "response", "status": "completed", "output": items, "usage": usage}

    def stream(self, message: dict[str, Any]) -> Iterator[dict[str, Any]]:
        yield {"type": "response.created", "response": {"id": message["id"]}}
        for index, item in enumerate(message["output"]):
            yield {"type": "response.output_item.done", "output_index": index, "item": item}
        yield {"type": "response.completed", "response": message}
