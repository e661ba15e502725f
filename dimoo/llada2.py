"""A call in the style of diffusers' `LLaDA2Pipeline`, answered by our loop.

Argument names and outputs are diffusers'; every method and cache of ours is available besides, through `settings`.
Where the two differ: our models attend to the whole canvas, so blocks to the right are visible as masks; a mask is
never committed; an answer ends at its first end token with nothing open on its left; with a temperature, certainty
is that of the untempered distribution; `minimal_topk` is what every rule of ours does anyway, at least one a step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from diffusers.utils import BaseOutput
from torch import Tensor

from dimoo.pipeline import DiMOOPipeline
from dimoo.sampling import TokenEditing
from dimoo.sampling.rules import ThresholdOrQuota
from dimoo.tasks.text import Text, within

METHODS = ("auto", "greedy", "multinomial")
ROLES = ("user", "assistant")


@dataclass
class LLaDA2Output(BaseOutput):
    """sequences: (B, gen_length) ids without the prompt, padded behind the end. texts: what they say."""

    sequences: Tensor
    texts: list[str] | None


class LLaDA2Adapter:
    """Wraps a pipeline: `LLaDA2Adapter(pipeline)("a question", gen_length=64, threshold=0.7)`."""

    def __init__(self, pipeline: DiMOOPipeline):
        self.pipeline = pipeline

    def __call__(
        self,
        prompt: str | Sequence[str] | None = None,
        *,
        messages: Sequence[dict[str, str]] | None = None,
        gen_length: int = 2048,
        block_length: int | None = 32,
        num_inference_steps: int = 32,
        temperature: float = 0.0,
        top_p: float | None = None,
        top_k: int | None = None,
        sampling_method: str = "multinomial",
        threshold: float = 0.7,
        editing_threshold: float | None = 0.5,
        max_post_steps: int = 16,
        generator: torch.Generator | list[torch.Generator] | None = None,
        output_type: str = "text",
        return_dict: bool = True,
        callback_on_step_end: Callable | None = None,
        callback_on_step_end_tensor_inputs: Sequence[str] = ("ids",),
        **settings: Any,
    ) -> LLaDA2Output | tuple:
        """Generate; `num_inference_steps` counts per block, an `editing_threshold` of None or 0 edits nothing.

        Raises:
            ValueError: neither or both of prompt and messages, turns in the wrong order, or a value out of range.
        """
        if sampling_method not in METHODS or output_type not in ("text", "seq"):
            raise ValueError(
                f"sampling_method is one of {', '.join(METHODS)} and output_type text or seq, "
                f"got {sampling_method!r} and {output_type!r}"
            )
        block_length = block_length or 32
        if gen_length < 1 or num_inference_steps < 1 or block_length < 1:
            given = f"{gen_length}, {num_inference_steps} and {block_length}"
            raise ValueError(f"gen_length, num_inference_steps and block_length must be at least 1, got {given}")
        blocks = -(-gen_length // block_length)
        length = blocks * block_length if blocks > 1 else gen_length            # whole blocks; cut again below
        tasks = [Text(question, length, history) for question, history in read(prompt, messages)]
        chosen = {
            "rule": ThresholdOrQuota(threshold),
            "editing": TokenEditing(editing_threshold, max_post_steps) if editing_threshold else None,
            "num_inference_steps": min(num_inference_steps, block_length) * blocks,
            "block_length": block_length,
            "temperature": 0.0 if sampling_method == "greedy" else temperature,
            "rank_temperature": 0.0,
            "top_p": top_p,
            "top_k": top_k,
        }
        made = self.pipeline.run(
            tasks, generator=generator, output_type="tokens", callback_on_step_end=callback_on_step_end,
            callback_on_step_end_tensor_inputs=callback_on_step_end_tensor_inputs, **chosen | settings,
        )  # fmt: skip
        codec = self.pipeline.codec
        answers = [within(codec, ids)[:gen_length] for ids in made.texts]
        sequences = torch.stack([ended(ids, codec.vocab) for ids in answers])
        texts = None if output_type == "seq" else [codec.text.decode(ids) for ids in answers]
        output = LLaDA2Output(sequences=sequences, texts=texts)
        return output if return_dict else (output.sequences, output.texts)


def read(prompt, messages) -> list[tuple[str, tuple[tuple[str, str], ...]]]:
    """(question, earlier turns) of each sample."""
    if (prompt is None) == (messages is None):
        raise ValueError("give either a prompt or messages")
    if prompt is not None:
        return [(text, ()) for text in ([prompt] if isinstance(prompt, str) else prompt)]
    said = [(message["role"], message["content"]) for message in messages]
    wrong = [role for k, (role, _) in enumerate(said) if role != ROLES[k % 2]]
    if wrong or len(said) % 2 == 0:
        raise ValueError(f"messages alternate user, assistant, ... and end with user, got {[role for role, _ in said]}")
    words = [content for _, content in said]
    return [(words[-1], tuple(zip(words[:-1:2], words[1::2], strict=True)))]


def ended(ids: Tensor, vocab) -> Tensor:
    """An answer (T,) with padding behind its first end token."""
    ends = vocab.is_end(ids)
    return ids.masked_fill((ends.cumsum(0) - ends.long()) > 0, vocab.pad)
