"""Pictures and texts of the world outside -> pre-tokenised parquet, as Lumina-DiMOO's training data is prepared.

One JSON object a line, pictures as paths relative to the file:

    {"task": "text_to_image", "prompt": "a harbour at dawn", "image": "0.jpg"}
    {"task": "edit", "prompt": "remove the boat", "images": ["0.jpg"], "image": "1.jpg", "edit": "edit_remove"}
    {"task": "understanding", "prompt": "how many boats?", "images": ["0.jpg"], "answer": "two"}

`edit` is a kind of `dimoo.tasks.edit.EDIT_KINDS` ("edit_other" when absent), `id` may be anything.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset, Features, List, Value
from PIL import Image

from dimoo.images import load_image
from dimoo.pipeline import DiMOOPipeline
from dimoo.sizes import cover, crop_sizes, nearest_size
from dimoo.tasks.base import to_pixels
from dimoo.tasks.edit import EDIT_KINDS, PICTURES

PART = 512
"""Lines of a part: what a stopped run does again at most."""
CODES = {"codes": List(Value("int32")), "length": Value("int32"), "height": Value("int32"), "width": Value("int32")}
FEATURES = Features({
    "id": Value("string"), "task": Value("string"), "system": Value("string"), "user": Value("string"),
    "user_images": List(CODES), "answer": Value("string"), "answer_image": List(CODES), "len": Value("int32"),
})  # fmt: skip
"""A record. `codes` are vocabulary ids (offset added) in reading order without row ends, height and width in pixels;
`answer_image` has one entry or none; `len` is the length of the whole sequence, padding of a text answer left out."""

Item = dict[str, Any]


class BadLine(ValueError):
    """What is wrong with a line; the caller knows its number."""


@dataclass(frozen=True)
class Sides:
    """Pixels a side of the square of the same area: drawings, edits, and pictures that are asked about."""

    drawing: int
    edit: int

    @classmethod
    def of(cls, pipeline: DiMOOPipeline) -> Sides:
        return cls(pipeline.defaults.height, pipeline.defaults.image_side)

    def to_ask(self, image: Image.Image, ratio: int) -> tuple[int, int]:
        """(width, height) of a picture that is asked about: small ones go to the bucket of `edit`, large ones to that
        of twice the side, those between only to multiples of a code. BadLine for one of four times the side."""
        area = image.width * image.height
        if area >= (4 * self.edit) ** 2:
            raise BadLine(f"a picture of {image.width}x{image.height}: {4 * self.edit}^2 pixels and more are left out")
        if self.edit**2 <= area <= (2 * self.edit) ** 2:
            return image.width // ratio * ratio, image.height // ratio * ratio
        side = self.edit if area < self.edit**2 else 2 * self.edit
        return nearest_size(image.size, crop_sizes(side, 2 * ratio))


class Recorder:
    """Turns items into records. All pictures of an item are cut at one window, which follows from `seed` and the line,
    and the target of an edit has the size of its source, so that source and target stay aligned."""

    def __init__(self, pipeline: DiMOOPipeline, root: Path, seed: int = 0):
        self.codec, self.root, self.seed, self.sides = pipeline.codec, root, seed, Sides.of(pipeline)

    def record(self, line: str, number: int) -> dict[str, Any]:
        """The record of a line. Raises BadLine saying what is wrong with it."""
        item, window = parse(line), tuple(np.random.default_rng([self.seed, number]).random(2))
        system, user = SYSTEMS[item["task"]](item)
        images = [self.load(name) for name in item.get("images", [])]
        target = [self.load(item["image"])] if "image" in item else []
        sizes = [self.size(item["task"], image) for image in images]
        to = sizes[0] if sizes else None
        found = {
            "id": str(item.get("id", number)), "task": item["task"], "system": system, "user": user,
            "user_images": [self.codes(image, size, window) for image, size in zip(images, sizes, strict=True)],
            "answer": item.get("answer", ""),
            "answer_image": [self.codes(t, to or self.size(item["task"], t), window) for t in target],
        }  # fmt: skip
        return found | {"len": self.length(found)}

    def load(self, name: str) -> Image.Image:
        try:
            return load_image(self.root / name)
        except (OSError, ValueError) as error:
            raise BadLine(str(error)) from None

    def size(self, task: str, image: Image.Image) -> tuple[int, int]:
        ratio = self.codec.images.ratio
        if task == "understanding":
            return self.sides.to_ask(image, ratio)
        side = self.sides.edit if task == "edit" else self.sides.drawing
        return nearest_size(image.size, crop_sizes(side, 2 * ratio))

    def codes(self, image: Image.Image, size: tuple[int, int], window: tuple[float, float]) -> dict[str, Any]:
        cut = cover(image, size, window)
        ids = self.codec.images.encode(to_pixels(cut)[None])[0].flatten() + self.codec.vocab.image_offset
        return {"codes": ids.tolist(), "length": len(ids), "height": cut.height, "width": cut.width}

    def length(self, record: dict[str, Any]) -> int:
        """Tokens of the whole sequence: prompt, images with their row ends, answer and its ends."""
        ratio, text = self.codec.images.ratio, self.codec.text
        pictures = record["user_images"] + record["answer_image"]
        images = sum(p["length"] + p["height"] // ratio + 2 for p in pictures)
        words = len(text.first_turn(record["system"], record["user"])) + len(text.encode(record["answer"]))
        return images + words + 2


def parse(line: str) -> Item:
    """One item with the fields of its task. Raises BadLine."""
    try:
        item = json.loads(line)
    except json.JSONDecodeError as error:
        raise BadLine(f"not JSON ({error.msg})") from None
    if not isinstance(item, dict) or item.get("task") not in SYSTEMS:
        raise BadLine(f'"task" has to be one of {", ".join(SYSTEMS)}')
    wanted = {"prompt": str} | NEEDED[item["task"]]
    for name, kind in wanted.items():
        if not isinstance(item.get(name), kind) or not item[name]:
            raise BadLine(f'{item["task"]} needs "{name}", a {"list of paths" if kind is list else "text"}')
    if not all(isinstance(path, str) for path in item.get("images", ())):
        raise BadLine('"images" has to be a list of paths')
    return {name: value for name, value in item.items() if name in {"task", "id", "edit", *wanted}}


def _edit(item: Item) -> tuple[str, str]:
    kind = item.get("edit", "edit_other")
    if kind not in EDIT_KINDS:
        raise BadLine(f'unknown "edit" {kind!r}; allowed: {", ".join(EDIT_KINDS)}')
    if len(item["images"]) != PICTURES.get(kind, 1):
        raise BadLine(f"{kind} takes {PICTURES.get(kind, 1)} picture(s), got {len(item['images'])}")
    system, fixed = EDIT_KINDS[kind]
    return system, fixed or item["prompt"]


NEEDED: dict[str, dict[str, type]] = {
    "text_to_image": {"image": str}, "edit": {"images": list, "image": str},
    "understanding": {"images": list, "answer": str},
}  # fmt: skip
"""Task -> fields it needs beside the prompt."""
SYSTEMS: dict[str, Callable[[Item], tuple[str, str]]] = {
    "text_to_image": lambda item: ("text_to_image", item["prompt"]), "edit": _edit,
    "understanding": lambda item: ("understanding", item["prompt"]),
}  # fmt: skip
"""Task -> key of the system prompt, and what the user says."""


def tokenise(
    data: Path, pipeline: DiMOOPipeline, out: Path, seed: int = 0, log: Callable[[str], None] = print, part: int = PART
) -> tuple[int, int]:
    """Write out/part-NNNNN.parquet, each of `part` lines of `data`; returns how many records and bad lines there are.

    Parts that are there stay, so a stopped run goes on with the next one. Bad lines are left out and named in the log
    and in out/part-NNNNN.bad. Raises ValueError where `out` holds parts of other data or of another image tokenizer.
    """
    out.mkdir(parents=True, exist_ok=True)
    check_origin(out, {"data": str(data.resolve()), "part": part, "seed": seed, **origin(pipeline)})
    recorder, kept, bad = Recorder(pipeline, data.parent, seed), 0, 0
    for number, lines in enumerate(chunks(data, part)):
        path, first = out / f"part-{number:05d}.parquet", number * part + 1
        if not path.exists():
            records, wrong = record_all(recorder, lines, first, f"{data}", log)
            aside = path.with_suffix(".part")
            path.with_suffix(".bad").write_text("".join(f"{words}\n" for words in wrong))
            columns = {name: [record[name] for record in records] for name in FEATURES}
            Dataset.from_dict(columns, features=FEATURES).to_parquet(aside)
            aside.replace(path)
            log(f"{path.name}: {len(records)} records")
        bad += len(path.with_suffix(".bad").read_text().splitlines())
        kept += sum(1 for line in lines if line.strip())
    return kept - bad, bad


def record_all(recorder: Recorder, lines: list[str], first: int, name: str, log) -> tuple[list[dict], list[str]]:
    """Records of lines `first`, first + 1 ..., and what is wrong with the others."""
    records, wrong = [], []
    for number, line in enumerate(lines, first):
        if not line.strip():
            continue
        try:
            records.append(recorder.record(line, number))
        except BadLine as error:
            wrong.append(f"{name}, line {number}: {error}".replace("\n", " "))
            log(wrong[-1])
    return records, wrong


def chunks(data: Path, size: int) -> Iterator[list[str]]:
    with data.open(encoding="utf-8-sig", errors="replace") as lines:
        while chunk := list(islice(lines, size)):
            yield chunk


def origin(pipeline: DiMOOPipeline) -> dict[str, int]:
    """What codes mean: their offset, and a checksum of the codebook."""
    codebook = pipeline.vqvae.quantize.embedding.weight.detach().float().cpu().numpy().tobytes()
    return {"image_offset": pipeline.codec.vocab.image_offset, "codebook": zlib.crc32(codebook)}


def check_origin(out: Path, made_of: dict[str, Any]) -> None:
    """Note what the parts are made of, or compare with the note."""
    note = out / "made_of.json"
    if not note.exists():
        aside = note.with_suffix(".part")
        aside.write_text(json.dumps(made_of, indent=1) + "\n")
        aside.replace(note)
    found = json.loads(note.read_text())
    for name, value in made_of.items():
        if found.get(name) != value:
            raise ValueError(f"{note}: {name} is {found.get(name)!r} there and {value!r} here; choose another folder")
