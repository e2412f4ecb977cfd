"""A stand-in for the models of the agents: it asks for one tool call, and says it is done when it sees its result.

It speaks as much of four interfaces (Anthropic messages, OpenAI responses and chat completions, Gemini) as one
turn takes. Which tool is called, and with what, is the caller's to say, for it is the agent's.
"""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]
DONE = "done"


@dataclass
class StandIn:
    """What is asked for, and what was seen: the path of each request."""

    tool: str
    arguments: Json
    seen: list[str] = field(default_factory=list)
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def answer(self, path: str, asked: Json) -> tuple[str, bytes]:
        """The type and the body of the answer."""
        text = json.dumps(asked)
        if "/messages" in path:
            if not asked.get("tools") or path.endswith("count_tokens"):
                return self._anthropic(asked, [_text()])
            return self._anthropic(asked, [_text()] if '"tool_result"' in text else [self._tool_use()])
        if "/responses" in path:
            return _sse(self._responses(DONE if '"function_call_output"' in text else None))
        if "/chat/completions" in path:
            plain = not asked.get("tools") or any(said.get("role") == "tool" for said in asked["messages"])
            return _sse(self._chat(plain), last="[DONE]")
        if "enerateContent" in path:
            plain = not asked.get("tools") or '"functionResponse"' in text
            answer = self._gemini(plain)
            return _sse([(None, answer)]) if "stream" in path else ("application/json", _bytes(answer))
        return "application/json", b'{"data": [], "models": []}'

    def _tool_use(self) -> Json:
        return {"type": "tool_use", "id": "toolu_1", "name": self.tool, "input": self.arguments}

    def _anthropic(self, asked: Json, content: list[Json]) -> tuple[str, bytes]:
        stop = "tool_use" if content[0]["type"] == "tool_use" else "end_turn"
        usage = {"input_tokens": 1, "output_tokens": 1}
        message = {"id": "msg_1", "type": "message", "role": "assistant", "model": asked.get("model", "m")}
        message |= {"content": content, "stop_reason": stop, "stop_sequence": None, "usage": usage}
        if not asked.get("stream"):
            return "application/json", _bytes(message | {"input_tokens": 1})
        (block,) = content
        if stop == "tool_use":
            start, delta = block | {"input": {}}, {"type": "input_json_delta"}
            delta["partial_json"] = json.dumps(self.arguments)
        else:
            start, delta = block | {"text": ""}, {"type": "text_delta", "text": block["text"]}
        events: list[Json] = [
            {"type": "message_start", "message": message | {"content": [], "stop_reason": None}},
            {"type": "content_block_start", "index": 0, "content_block": start},
            {"type": "content_block_delta", "index": 0, "delta": delta},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": stop, "stop_sequence": None}, "usage": usage},
            {"type": "message_stop"},
        ]
        return _sse((event["type"], event) for event in events)

    def _responses(self, text: str | None) -> Iterable[tuple[str | None, Json]]:
        item: Json
        if text is not None:
            item = {"type": "message", "role": "assistant", "id": "item_1"}
            item["content"] = [{"type": "output_text", "text": text}]
        else:
            item = {"type": "function_call", "id": "item_1", "call_id": "call_1", "name": self.tool}
            item["arguments"] = json.dumps(self.arguments)
        usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
        events: list[Json] = [
            {"type": "response.created", "response": {"id": "resp_1"}},
            {"type": "response.output_item.done", "output_index": 0, "item": item},
            {"type": "response.completed", "response": {"id": "resp_1", "output": [item], "usage": usage}},
        ]
        return ((event["type"], event) for event in events)

    def _chat(self, plain: bool) -> Iterable[tuple[str | None, Json]]:
        call: Json = {"index": 0, "id": "call_1", "type": "function"}
        call["function"] = {"name": self.tool, "arguments": json.dumps(self.arguments)}
        delta: Json = {"role": "assistant", "content": DONE} if plain else {"role": "assistant"}
        if not plain:
            delta["tool_calls"] = [call]
        base = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "stand-in"}
        finish = "stop" if plain else "tool_calls"
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        yield None, base | {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
        yield None, base | {"choices": [{"index": 0, "delta": {}, "finish_reason": finish}], "usage": usage}

    def _gemini(self, plain: bool) -> Json:
        call = {"functionCall": {"name": self.tool, "args": self.arguments}}
        part: Json = {"text": DONE} if plain else call
        found = {"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}
        usage = {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}
        return {"candidates": [found], "usageMetadata": usage, "modelVersion": "stand-in"}


def _text() -> Json:
    return {"type": "text", "text": DONE}


def _bytes(answer: Json) -> bytes:
    return json.dumps(answer).encode()


def _sse(events: Iterable[tuple[str | None, Json]], last: str = "") -> tuple[str, bytes]:
    lines = [(f"event: {name}\n" if name else "") + f"data: {json.dumps(data)}\n\n" for name, data in events]
    return "text/event-stream", "".join([*lines, *([f"data: {last}\n\n"] if last else [])]).encode()


@contextmanager
def serving(standin: StandIn) -> Iterator[StandIn]:
    """Serve on a free port of this machine for the time of the block."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._reply({})

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            try:
                asked = json.loads(body)
            except ValueError:
                asked = {}
            self._reply(asked if isinstance(asked, dict) else {})

        def _reply(self, asked: Json) -> None:
            standin.seen.append(f"{self.command} {self.path}")
            kind, body = standin.answer(self.path, asked)
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        standin.port = server.server_port
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield standin
        finally:
            server.shutdown()
            thread.join()
