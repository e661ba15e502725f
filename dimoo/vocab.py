"""Every id that means something, read from the checkpoint. The only place such numbers exist."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

TOKEN_STRINGS: dict[str, tuple[str, ...]] = {
    "mask": ("<|mdm_mask|>",),
    "pad": ("<|pad|>", "<|reserved_token_255|>"),
    "newline": ("<|newline|>", "<end-of-line>", "<|reserved_token_0|>"),
    "boi": ("<IMAGE>",),
    "eoi": ("</IMAGE>",),
    "uncondition": ("<uncondition>",),
    "boa": ("<answer>",),
    "eoa": ("</answer>",),
}
"""Role -> the token strings it goes by: ours first, then the hosted checkpoint's (it reuses reserved tokens)."""
TEXT_ONLY: dict[str, tuple[str, ...]] = {"mask": ("<|mdm_mask|>",), "pad": ("<|endoftext|>",), "eoa": ("<|eot_id|>",)}
"""The same for checkpoints without pictures (LLaDA 8B, 1.5): turns end with one token, padding is another."""


class CheckpointError(ValueError):
    """A checkpoint that contradicts itself or lacks something; the message names the file and the field."""


@dataclass(frozen=True)
class Vocab:
    """Ids of one checkpoint. Image code k has the id `image_offset + k`, 0 <= k < codebook_size.

    boi / eoi open and close an image, boa / eoa an answer; `newline` ends each row of an image. A checkpoint of text
    alone has None for boa and everything about images, and no codes.
    """

    mask: int
    pad: int
    newline: int | None
    boi: int | None
    eoi: int | None
    uncondition: int | None
    boa: int | None
    eoa: int
    image_offset: int
    codebook_size: int
    size: int

    def __post_init__(self):
        if self.image_offset + self.codebook_size > self.size:
            raise CheckpointError(
                f"image_token_offset={self.image_offset} + codebook_size={self.codebook_size} "
                f"does not fit into vocab_size={self.size}"
            )
        for name in TOKEN_STRINGS:
            value = getattr(self, name)
            if value is None and name not in TEXT_ONLY:
                continue
            if not 0 <= value < self.size or value in range(*self.codes.indices(self.size)):
                raise CheckpointError(f"the id of {name!r} is {value}: outside the vocabulary or an image code")

    @property
    def codes(self) -> slice:
        """Columns of the image codes."""
        return slice(self.image_offset, self.image_offset + self.codebook_size)

    @property
    def everything(self) -> slice:
        return slice(0, self.size)

    @property
    def ends(self) -> tuple[int, int]:
        """Ids that end a text answer."""
        return self.eoa, self.pad

    def is_end(self, ids: Tensor) -> Tensor:
        """Where ids end a text answer; nothing is copied to the device."""
        return (ids == self.eoa) | (ids == self.pad)

    @classmethod
    def from_checkpoint(cls, tokenizer, config, codebook_size: int | None = None) -> Vocab:
        """Read the ids from a tokenizer (by token string) and a model config (fields).

        `codebook_size` is the image tokenizer's, checked against the config when both state it. Without a field
        `image_token_offset` the codes begin right behind the last of these tokens, as in the hosted checkpoint,
        whether or not its tokenizer lists the codes too.

        Raises:
            CheckpointError: a token or field is missing, or two sources contradict each other.
        """
        known = tokenizer.get_vocab()
        if codebook_size is None and is_text_only(tokenizer):
            return cls._text_only(known, config)
        ids = {role: _find(role, strings, known) for role, strings in TOKEN_STRINGS.items()}
        if config.mask_token_id != ids["mask"]:
            raise CheckpointError(
                f"config.json: mask_token_id={config.mask_token_id}, but the tokenizer says {ids['mask']}"
            )
        stated = config.codebook_size
        if stated is None and codebook_size is None:
            raise CheckpointError("codebook_size is stated neither in config.json nor by an image tokenizer")
        if stated is not None and codebook_size is not None and stated != codebook_size:
            raise CheckpointError(f"config.json: codebook_size={stated}, but the image tokenizer has {codebook_size}")
        offset = config.image_token_offset if config.image_token_offset is not None else max(ids.values()) + 1
        return cls(**ids, image_offset=offset, codebook_size=stated or codebook_size, size=config.vocab_size)

    @classmethod
    def _text_only(cls, known: dict[str, int], config) -> Vocab:
        ids = dict.fromkeys(TOKEN_STRINGS) | {role: _find(role, strings, known) for role, strings in TEXT_ONLY.items()}
        if config.mask_token_id != ids["mask"]:
            raise CheckpointError(
                f"config.json: mask_token_id={config.mask_token_id}, but the tokenizer says {ids['mask']}"
            )
        return cls(**ids, image_offset=config.vocab_size, codebook_size=0, size=config.vocab_size)

    def lay_out(self, codes: Tensor) -> Tensor:
        """codes (h, w) or a canvas of ids already -> the ids of one image: boi, {w codes, newline} x h, eoi."""
        rows = codes + self.image_offset
        breaks = rows.new_full((rows.shape[0], 1), self.newline)
        body = torch.cat([rows, breaks], dim=1).flatten()
        return torch.cat([body.new_tensor([self.boi]), body, body.new_tensor([self.eoi])])

    def empty_image(self, height: int, width: int) -> Tensor:
        """The ids of an image whose codes are all masked."""
        return self.lay_out(torch.full((height, width), self.mask - self.image_offset))

    def read_codes(self, ids: Tensor, height: int, width: int) -> Tensor:
        """Inverse of `lay_out`: ids of one image -> codes (height, width).

        Raises:
            ValueError: a position that should hold a code holds another id (for example a mask).
        """
        codes = self.cells(ids, height, width) - self.image_offset
        if codes.numel() and not 0 <= int(codes.min()) <= int(codes.max()) < self.codebook_size:
            raise ValueError("the image is not finished: some of its positions do not hold an image code")
        return codes

    @staticmethod
    def cells(ids: Tensor, height: int, width: int) -> Tensor:
        """ids of one image, finished or not -> the ids of its cells (height, width), without markers and row ends."""
        return ids[1:-1].view(height, width + 1)[:, :-1]


def is_text_only(tokenizer) -> bool:
    """Whether a tokenizer is that of a checkpoint without pictures."""
    known = tokenizer.get_vocab().keys()
    has = all(known & set(strings) for strings in TEXT_ONLY.values())
    return has and not any(known & set(TOKEN_STRINGS[role]) for role in ("boi", "boa"))


def _find(role: str, strings: tuple[str, ...], known: dict[str, int]) -> int:
    for string in strings:
        if string in known:
            return known[string]
    raise CheckpointError(f"the tokenizer has no token for {role!r}; looked for {', '.join(strings)}")
