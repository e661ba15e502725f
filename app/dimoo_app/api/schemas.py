"""What a request may say. OpenAI's names; ours come on top. What we do not know is refused, not ignored."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from dimoo.blocks import whole_blocks
from dimoo.cache import CACHES
from dimoo.settings import Settings
from dimoo_app.api.service import ApiLimits, Service

HARMLESS = {
    "user", "quality", "style", "background", "moderation", "output_compression", "input_fidelity", "store", "metadata",
    "service_tier", "parallel_tool_calls", "safety_identifier", "prompt_cache_key", "reasoning_effort", "verbosity",
}  # fmt: skip
"""OpenAI fields that have no meaning here and change nothing that a client relies on."""

NEUTRAL: dict[str, tuple[Any, ...]] = {
    "frequency_penalty": (0, None), "presence_penalty": (0, None), "logprobs": (False, None), "top_logprobs": (0, None),
    "logit_bias": ({}, None), "stop": ([], "", None), "tools": ([], None), "tool_choice": ("none", "auto", None),
    "response_format": ({"type": "text"}, None), "modalities": (["text"], None),
}  # fmt: skip
"""OpenAI chat fields that we do not have -> the values that ask for nothing."""


class Sampling(BaseModel):
    """Fields of every request that say how to sample; None is the checkpoint's own."""

    model_config = ConfigDict(extra="forbid")

    model: str | None = None
    seed: int | None = None
    steps: int | None = Field(None, ge=1)
    guidance_scale: float | None = Field(None, ge=0, le=100)
    temperature: float | None = Field(None, ge=0, le=10)
    top_p: float | None = Field(None, gt=0, le=1)
    cache: Literal[tuple(CACHES)] | None = None
    preset: str | None = None

    @model_validator(mode="before")
    @classmethod
    def drop_harmless(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        return {name: value for name, value in given.items() if name not in HARMLESS - set(cls.model_fields)}

    def settings(self, limits: ApiLimits, **more: Any) -> Settings:
        """Raises ValueError for more steps than allowed and unknown presets."""
        if (self.steps or 0) > limits.steps:
            raise ValueError(f"steps must be at most {limits.steps}, got {self.steps}")
        stated = {"num_inference_steps": self.steps, "top_p": None if self.top_p == 1 else self.top_p, **more}
        stated |= {name: getattr(self, name) for name in ("guidance_scale", "temperature", "cache", "preset")}
        return Settings(**{name: value for name, value in stated.items() if value is not None})


class PictureRequest(Sampling):
    """What drawings and edits share."""

    prompt: str
    n: int = Field(1, ge=1)
    size: str | None = None
    response_format: Literal["b64_json", "url"] = "b64_json"
    output_format: Literal["png"] = "png"
    stream: bool = False
    partial_images: int = Field(0, ge=0, le=3)

    @model_validator(mode="before")
    @classmethod
    def drop_none(cls, given: Any) -> Any:
        """OpenAI's fields may be null, which means their default."""
        return {name: value for name, value in given.items() if value is not None} if isinstance(given, dict) else given

    def check(self, limits: ApiLimits) -> None:
        if self.n > limits.pictures:
            raise ValueError(f"n must be at most {limits.pictures}, got {self.n}")
        if len(self.prompt) > limits.letters:
            raise ValueError(f"the prompt has {len(self.prompt)} letters; allowed: {limits.letters}")

    def shape(self, served: Service) -> tuple[int, int]:
        """(height, width) in pixels from OpenAI's WIDTHxHEIGHT. Raises ValueError for what is no size, or too large."""
        defaults = served.session.pipeline.defaults
        if self.size in (None, "auto"):
            return defaults.height, defaults.width
        match = re.fullmatch(r"(\d{1,5})x(\d{1,5})", self.size)
        if not match:
            raise ValueError(f"size is WIDTHxHEIGHT in pixels or auto, got {self.size!r}")
        width, height = int(match[1]), int(match[2])
        if width * height > served.pixels:
            raise ValueError(f"size {self.size} has {width * height} pixels; allowed: {served.pixels}")
        return height, width


class GenerationRequest(PictureRequest):
    """/v1/images/generations."""


class EditRequest(PictureRequest):
    """/v1/images/edits, without its files. `edit` is a kind of edit of the checkpoint."""

    image_guidance_scale: float | None = Field(None, ge=0, le=100)
    edit: str = "edit_other"


class ImageUrl(BaseModel):
    url: str
    detail: str | None = None


class TextPart(BaseModel):
    type: Literal["text"]
    text: str


class ImagePart(BaseModel):
    type: Literal["image_url"]
    image_url: ImageUrl


Part = Annotated[TextPart | ImagePart, Field(discriminator="type")]


class Message(BaseModel):
    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[Part] | None = None
    name: str | None = None

    @property
    def text(self) -> str:
        if isinstance(self.content, list):
            return "\n".join(part.text for part in self.content if isinstance(part, TextPart))
        return self.content or ""

    @property
    def urls(self) -> list[str]:
        parts = self.content if isinstance(self.content, list) else []
        return [part.image_url.url for part in parts if isinstance(part, ImagePart)]


class StreamOptions(BaseModel):
    include_usage: bool = False
    include_obfuscation: bool = False


class ChatRequest(Sampling):
    """/v1/chat/completions."""

    messages: list[Message] = Field(min_length=1)
    n: int = Field(1, ge=1)
    max_tokens: int | None = Field(None, ge=1)
    max_completion_tokens: int | None = Field(None, ge=1)
    stream: bool = False
    stream_options: StreamOptions | None = None

    @model_validator(mode="before")
    @classmethod
    def drop_neutral(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        kept = {name: value for name, value in given.items() if value not in NEUTRAL.get(name, ())}
        if asked := sorted(set(kept) & set(NEUTRAL)):
            raise ValueError(f"not supported by this kind of model: {', '.join(asked)}")
        return kept

    def length(self, default: int, block_length: int, limits: ApiLimits) -> int:
        """Tokens of the answer, in whole blocks. Raises ValueError for more than allowed."""
        length = self.max_completion_tokens or self.max_tokens or default
        if length > limits.tokens:
            raise ValueError(f"max_tokens must be at most {limits.tokens}, got {length}")
        return whole_blocks(length, block_length)
