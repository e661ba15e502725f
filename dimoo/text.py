"""Words to ids and back. Prompts are assembled from ids, so a user's text can never become a control token."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby

import torch
from torch import Tensor

from dimoo.vocab import CheckpointError, Vocab

SYSTEM_PROMPTS: dict[str, str] = {
    "text_to_image": "Generate an image according to the text prompt.",
    "image_to_image": "Generate an image according to the prompt and image.",
    "edit": "Generate an image applying the following editing instruction based on the original image.",
    "control": "Generate an image according to the text prompt and the given control image.",
    "subject": "Generate an image according to the text prompt and the given object image.",
    "style": "Transform the current image into the style of the provided image.",
    "view": "Generate a view-image based on the given image.",
    "dense": "Perform dense prediction on the given images.",
    "understanding": (
        "You are a multimodal model that can process both text and images. Answer the following question based on "
        "the provided images. Analyze each image and combine relevant details to answer."
    ),
}
"""Fixed instructions the checkpoints were trained with, one per kind of task; training uses this same table."""

TAGS = ("<system>", "</system>", "<user>", "</user>")


class TextTokenizer:
    """A transformers tokenizer seen as: text -> ids without control tokens, prompt parts -> ids, ids -> text."""

    def __init__(self, tokenizer, vocab: Vocab):
        self.tokenizer, self.vocab = tokenizer, vocab
        known = tokenizer.get_vocab()
        self.tags: dict[str, int | str] = {tag: known.get(tag, tag) for tag in TAGS}
        """The prompt tags: their ids, or the strings themselves where the tokenizer spells them like other text."""
        codes = range(vocab.size)[vocab.codes]
        if inside := [tag for tag, index in self.tags.items() if index in codes]:
            offset = vocab.image_offset
            raise CheckpointError(f"image_token_offset={offset} is stated wrong or not at all: {inside} are behind it")
        # Whole sentences may be one added token each (fixed instructions): those are words like others.
        added = {token.content: index for index, token in tokenizer.added_tokens_decoder.items()}
        self.control = {text: index for text, index in added.items() if " " not in text}
        self.control |= {tag: index for tag, index in self.tags.items() if isinstance(index, int)}
        self._control_ids = frozenset(self.control.values())
        self._pattern = re.compile("|".join(re.escape(t) for t in sorted(self.control, key=len, reverse=True)))

    def encode(self, text: str) -> list[int]:
        """Ids of a user's words. A control token's string inside the text stays ordinary text.

        The text is cut behind the first character of each such string and the pieces are tokenised alone.
        """
        cuts = [match.start() + 1 for match in self._pattern.finditer(text)]
        pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
        ids = [index for piece in pieces for index in self._plain(piece)]
        if self._control_ids.isdisjoint(ids):
            return ids
        # A normaliser may still have built a control string (full-width brackets, say): one character cannot.
        return [index for letter in text for index in self._plain(letter) if index not in self._control_ids]

    def _plain(self, piece: str) -> list[int]:
        return self.tokenizer(piece, add_special_tokens=False)["input_ids"] if piece else []

    def spell(self, *parts: int | str) -> list[int]:
        """Ids and texts in order, as ids; neighbouring texts are tokenised as one, since tokens may cross the seam."""
        ids: list[int] = []
        for is_text, run in groupby(parts, key=lambda part: isinstance(part, str)):
            given = list(run)
            ids += self.encode("".join(given)) if is_text else given
        return ids

    def conditions(self, task: str, text: str, images: Sequence[Tensor] = ()) -> dict[str, Tensor]:
        """What stands before an answer, for every branch a guider may ask for, as ids.

        The prompt is <system>S</system><user>T images</user> with the system prompt S of `task`.
        Branches: `cond` everything, `no_text` the unconditional marker instead of T, `no_image` no images,
        `uncond` neither.
        """
        marker = self.vocab.uncondition
        branches = {"cond": (text, images), "no_text": (marker, images), "no_image": (text, ()), "uncond": (marker, ())}
        return {name: torch.tensor(self.first_turn(task, *parts)) for name, parts in branches.items()}

    def first_turn(self, task: str, text: int | str, images: Sequence[Tensor] = ()) -> list[int]:
        """System prompt and first turn; images stand before the last id, as published. ValueError for no such task."""
        if task not in SYSTEM_PROMPTS:
            raise ValueError(f"no system prompt for task {task!r}; allowed: {', '.join(SYSTEM_PROMPTS)}")
        system = (self.tags["<system>"], SYSTEM_PROMPTS[task], self.tags["</system>"])
        ids = self.spell(*system, self.tags["<user>"], text, self.tags["</user>"])
        return [*ids[:-1], *(index for image in images for index in image.tolist()), ids[-1]]

    def next_turn(self, text: str) -> list[int]:
        """<user>T</user>."""
        return self.spell(self.tags["<user>"], text, self.tags["</user>"])

    @property
    def around(self) -> tuple[list[int], list[int]]:
        """Ids that open and close an answer inside the canvas: the answer tokens, or nothing under a chat template."""
        return ([], []) if self.vocab.boa is None else ([self.vocab.boa], [self.vocab.eoa])

    def chat(self, turns: Sequence[tuple[str, str]], images: Sequence[Tensor] = ()) -> list[int]:
        """The ids before an open answer: earlier (question, answer) turns and a last question, whose answer counts
        as nothing. The images stand in the first turn. A checkpoint of text alone has a chat template of its own."""
        if self.vocab.boa is None:
            return self._templated(turns)
        v, (first, *rest) = self.vocab, turns
        ids = self.first_turn("understanding", first[0], images)
        for (_, answer), (question, _) in zip(turns, rest, strict=False):
            ids += [v.boa, *self.encode(answer), v.eoa, *self.next_turn(question)]
        return ids

    def _templated(self, turns: Sequence[tuple[str, str]]) -> list[int]:
        """Through the checkpoint's template: rendered with markers in place of the words, so these stay plain text."""
        said = [text for turn in turns for text in turn][:-1]                   # the last answer is still open
        roles = ("user", "assistant")
        messages = [{"role": roles[k % 2], "content": f"\ue000{k}\ue001"} for k in range(len(said))]
        shown = self.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        ids: list[int] = []
        for k, part in enumerate(re.split("\ue000(\\d+)\ue001", shown)):
            ids += self.encode(said[int(part)]) if k % 2 else self._plain(part)
        return ids

    def preview(self, ids: Tensor | list[int], mask: str = "░") -> str:
        """Text of an unfinished answer up to an end token without masks before it; `mask` stands for each open one."""
        made, words = [], []
        for index in ids.tolist() if isinstance(ids, Tensor) else ids:
            if index == self.vocab.mask:
                made, words = [*made, self.decode(words, strip=False), mask], []
            elif index in self.vocab.ends:
                if mask not in made:
                    break
                made, words = [*made, self.decode(words, strip=False)], []
            else:
                words.append(index)
        return "".join([*made, self.decode(words, strip=False)])

    def decode(self, ids: Tensor | list[int], strip: bool = True) -> str:
        """Text of an answer, up to its first end token; control tokens and masks are left out."""
        words = []
        for index in ids.tolist() if isinstance(ids, Tensor) else ids:
            if index in self.vocab.ends:
                break
            if index not in self._control_ids and index < self.vocab.image_offset:
                words.append(index)
        text = self.tokenizer.decode(words, skip_special_tokens=True)
        return text.strip() if strip else text
