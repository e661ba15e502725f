"""/v1/chat/completions: questions, about pictures or not, turn after turn."""

from __future__ import annotations

import base64
import binascii
import time
import uuid
from collections.abc import AsyncIterator, Sequence

from fastapi import APIRouter, Depends, Request
from fastapi.concurrency import run_in_threadpool
from PIL import Image

from dimoo.engine import Job, Result, Sample
from dimoo.images import load_image
from dimoo.tasks import Ask, Codec
from dimoo.tasks.text import within
from dimoo_app.api.following import finished, progress, sse, stream
from dimoo_app.api.schemas import ChatRequest, Message
from dimoo_app.api.service import Service, service

router = APIRouter(prefix="/v1/chat", tags=["chat"])


@router.post("/completions")
async def completions(asked: ChatRequest, request: Request, served: Service = Depends(service)):  # noqa: B008
    """Answer the last user message. Pictures of all turns stand in the first one, where the model expects them."""
    served.check_model(asked.model)
    if asked.n > served.limits.pictures:
        raise ValueError(f"n must be at most {served.limits.pictures}, got {asked.n}")
    task = await run_in_threadpool(conversation, asked, served)
    settings = asked.settings(served.limits)
    job = served.engine.submit([task] * asked.n, settings, seed=asked.seed, watched=asked.stream)
    if asked.stream:
        return stream(chunks(asked, job, served), job)
    result = await finished(request, job)
    choices = [
        {"index": k, "message": {"role": "assistant", "content": text, "refusal": None}, "logprobs": None,
         "finish_reason": reason(task, text, served)}
        for k, text in enumerate(result.answers)
    ]  # fmt: skip
    cost = await run_in_threadpool(usage, task, result, served)
    return {**_head("chat.completion", served), "choices": choices, "usage": cost}


def conversation(asked: ChatRequest, served: Service) -> Ask:
    """The messages as a task. Raises ValueError for an order that is no conversation."""
    defaults = served.session.pipeline.defaults
    letters = sum(len(message.text) for message in asked.messages)
    if letters > served.limits.letters:
        raise ValueError(f"the messages have {letters} letters; allowed: {served.limits.letters}")
    pictures = [picture(url) for message in asked.messages for url in message.urls]
    turns = merged(asked.messages)
    if [role for role, _ in turns] != ["user", "assistant"] * (len(turns) // 2) + ["user"]:
        raise ValueError("messages: user and assistant take turns, and the last message is the user's")
    texts = [text for _, text in turns]
    history = list(zip(texts[0:-1:2], texts[1::2], strict=True))
    return Ask(texts[-1], pictures, history, asked.length(defaults.text_length, defaults.block_length, served.limits))


def merged(messages: Sequence[Message]) -> list[tuple[str, str]]:
    """(role, text): neighbours of one role become one, and system messages stand before the first question."""
    system = [message.text for message in messages if message.role in ("system", "developer")]
    turns: list[tuple[str, str]] = []
    for message in messages:
        if message.role not in ("user", "assistant"):
            continue
        if turns and turns[-1][0] == message.role:
            turns[-1] = (message.role, f"{turns[-1][1]}\n{message.text}".strip())
        else:
            turns.append((message.role, message.text))
    if system and turns:
        turns[0] = (turns[0][0], "\n".join([*system, turns[0][1]]))
    return turns


def picture(url: str) -> Image.Image:
    """A data URL as a picture. Nothing is fetched for a stranger."""
    head, comma, body = url.partition(",")
    if not (head.startswith("data:") and comma):
        raise ValueError("image_url must be a data URL (data:image/png;base64,...); addresses are not fetched")
    try:
        return load_image(base64.b64decode(body, validate=True) if head.endswith(";base64") else body.encode())
    except binascii.Error as error:
        raise ValueError(f"image_url is not base64: {error}") from error


async def chunks(asked: ChatRequest, job: Job, served: Service) -> AsyncIterator[str]:
    """The answer's beginning as far as it is decided, whenever that has grown."""
    codec, head = served.session.pipeline.codec, _head("chat.completion.chunk", served)
    sent = [""] * asked.n

    def event(index: int, delta: dict, reason: str | None = None) -> str:
        choices = [{"index": index, "delta": delta, "finish_reason": reason, "logprobs": None}]
        return sse({**head, "choices": choices})

    for index in range(asked.n):
        yield event(index, {"role": "assistant", "content": ""})
    async for _ in progress(job):
        for index, sample in enumerate(job.samples):
            text = decided(codec, sample)
            if len(text) > len(sent[index]) and text.startswith(sent[index]):
                yield event(index, {"content": text[len(sent[index]) :]})
                sent[index] = text
    result, task = job.wait(0), job.samples[0].task
    for index, text in enumerate(result.answers):
        if rest := text.removeprefix(sent[index]):
            yield event(index, {"content": rest})
        yield event(index, {}, reason(task, text, served))
    if asked.stream_options and asked.stream_options.include_usage:
        cost = await run_in_threadpool(usage, task, result, served)
        yield sse({**head, "choices": [], "usage": cost})
    yield sse("[DONE]")


def decided(codec: Codec, sample: Sample) -> str:
    """The text before the first open position; half a character, which may still change, is held back."""
    if sample.ids is None:
        return ""
    ids, mask = within(codec, sample.ids).tolist(), codec.vocab.mask
    return codec.text.decode(ids[: ids.index(mask)] if mask in ids else ids).rstrip("\ufffd")


def usage(task: Ask, result: Result, served: Service) -> dict:
    """Tokens as OpenAI counts them, and forwards, which is what they cost here."""
    given = len(task.prepare(served.session.pipeline.codec).conditions["cond"])
    made = sum(tokens(text, served) for text in result.answers)
    counts = {"prompt_tokens": given, "completion_tokens": made, "total_tokens": given + made}
    return {**counts, "forwards": result.forwards, "seconds": round(result.seconds, 3)}


def reason(task: Ask, text: str, served: Service) -> str:
    """Why an answer ends: `length` when it has filled all its masks."""
    return "length" if tokens(text, served) >= task.length else "stop"


def tokens(text: str, served: Service) -> int:
    return len(served.session.pipeline.codec.text.encode(text))


def _head(kind: str, served: Service) -> dict:
    return {"id": f"chatcmpl-{uuid.uuid4().hex}", "object": kind, "created": int(time.time()), "model": served.name}
