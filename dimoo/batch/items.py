"""Lines of a JSONL file as things to do. Everything that can be known to be wrong is known before a model is loaded."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from dimoo.cli.generate import read_size
from dimoo.cli.requests import REQUESTS, Drawing, Request
from dimoo.cli.session import checked
from dimoo.cli.sources import Source
from dimoo.images import load_image
from dimoo.resolve import choices
from dimoo.settings import Defaults, Settings
from dimoo.tasks import Ask, Task

ALIASES = {"steps": "num_inference_steps", "guidance": "guidance_scale", "image_guidance": "image_guidance_scale"}
"""Names of the command line -> names of `Settings`."""
OWN = {"id", "task", "seed", "index", "size", "image"}
ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
PICTURES, ANSWERS = ".png", ".json"


@dataclass(frozen=True)
class Asking:
    """An answer in words."""

    prompt: str
    images: tuple[Source, ...] = ()
    turns: tuple[tuple[str, str], ...] = ()
    length: int | None = None
    name = "ask"

    def task(self, defaults: Defaults) -> Task:
        pictures = [load_image(source.path) for source in self.images]
        return Ask(self.prompt, pictures, self.turns, self.length or defaults.text_length)


KINDS: dict[str, type] = {**REQUESTS, Asking.name: Asking}


@dataclass(frozen=True)
class Item:
    """One line: what is asked for, how it is sampled, where chance starts, and the file its result goes to."""

    line: int
    id: str
    request: Request | Asking
    settings: dict[str, Any] = field(hash=False)
    start: tuple[int, int]
    file: str

    @property
    def kind(self) -> str:
        return {"ask": "text", "edit": "edit"}.get(self.request.name, "draw")

    def key(self, model: str) -> str:
        """Tells whether a result is of this very request, made by the model with fingerprint `model`."""
        stated = [self.request.name, asdict(self.request), self.settings, self.start, model]
        return hashlib.sha256(json.dumps(stated, sort_keys=True, default=str).encode()).hexdigest()[:24]

    @property
    def together(self) -> tuple:
        """Items that are near to each other in this order make good batches."""
        shape = getattr(self.request, "height", None) or 0, getattr(self.request, "width", None) or 0
        return self.kind, json.dumps(self.settings, sort_keys=True, default=str), shape, len(self.request.prompt)


class BadLines(ValueError):
    """Lines that cannot be done; `problems` are (line, what is wrong), `good` the items of all others."""

    def __init__(self, path: Path, problems: list[tuple[int, str]], good: list[Item]):
        self.problems, self.good = problems, good
        shown = "; ".join(f"line {line}: {words}" for line, words in problems[:20])
        more = f"; and {len(problems) - 20} more" if len(problems) > 20 else ""
        super().__init__(f"{path}: {shown}{more}")


def read_items(path: Path, seed: int = 0) -> list[Item]:
    """The items of a JSONL file (UTF-8, with or without BOM, any line ends; blank lines do not count).

    Item k, counted from 0, has the random stream (seed, k) unless its line states its own. Raises BadLines.
    """
    return _collect(path, lambda number, stated, count: [_item(number, stated, count, path.parent, seed)])


def read_geneval(path: Path, pictures: int = 4, seed: int = 0) -> list[Item]:
    """The items of a GenEval metadata file: `pictures` of each prompt, at the places the public scorer reads.

    That is NNNNN/samples/MMMMM.png, beside NNNNN/metadata.jsonl with the prompt's own line (`Folder.describe`).
    """
    def expand(number: int, stated: Mapping[str, Any], count: int) -> list[Item]:
        if "prompt" not in stated:
            raise ValueError("no 'prompt': this is no GenEval metadata")
        names = [(f"{count:05}-{k:05}", f"{count:05}/samples/{k:05}.png") for k in range(pictures)]
        drawing, starts = Drawing(stated["prompt"]), [(seed, count * pictures + k) for k in range(pictures)]
        return [Item(number, name, drawing, {}, start, file) for (name, file), start in zip(names, starts, strict=True)]

    return _collect(path, expand)


def lines(path: Path) -> Iterator[tuple[int, str]]:
    """(number, text) of the lines that are not blank. Raises ValueError for a file that is not UTF-8."""
    try:
        for number, text in enumerate(path.read_text("utf-8-sig").split("\n"), 1):   # other separators may be in JSON
            if text.strip():
                yield number, text
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not UTF-8 ({error})") from error


def _collect(path: Path, make: Callable[[int, Mapping[str, Any], int], list[Item]]) -> list[Item]:
    items: list[Item] = []
    problems: list[tuple[int, str]] = []
    seen: dict[str, int] = {}
    for count, (number, text) in enumerate(lines(path)):
        try:
            made = make(number, _object(text), count)
            for item in made:
                if (first := seen.setdefault(item.id.lower(), number)) != number:
                    raise ValueError(f"id {item.id!r} is that of line {first} already")
            items += made
        except (ValueError, OSError) as error:
            problems.append((number, str(error)))
    if problems:
        raise BadLines(path, problems, items)
    if not items:
        raise ValueError(f"{path}: no line says what to do")
    return items


def _object(text: str) -> dict[str, Any]:
    try:
        stated = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON ({error.msg} at column {error.colno})") from error
    if isinstance(stated, str):
        return {"prompt": stated}               # a line may be just its prompt
    if not isinstance(stated, dict):
        raise ValueError(f'a line is an object or a prompt in quotes, got {type(stated).__name__}')
    return stated


def _item(number: int, stated: Mapping[str, Any], count: int, beside: Path, seed: int) -> Item:
    stated = {ALIASES.get(name, name): value for name, value in stated.items() if value is not None}
    kind = KINDS.get(name := stated.get("task") or _guess(stated))
    if kind is None:
        raise ValueError(f"unknown task {name!r}{choices(str(name), KINDS)}")
    own, tuned = {f.name for f in fields(kind)}, {f.name for f in fields(Settings)}
    if unknown := [field for field in stated if field not in own | tuned | OWN]:
        raise ValueError(f"unknown field {unknown[0]!r}{choices(unknown[0], own | tuned | OWN | set(ALIASES))}")
    request = _request(kind, stated, own, beside)
    settings = {name: _untupled(value) for name, value in stated.items() if name in tuned}
    start = _whole(stated, "seed", seed), _whole(stated, "index", 0 if "seed" in stated else count)
    item_id = str(stated.get("id", f"{number:06}"))
    if not ID.fullmatch(item_id):
        raise ValueError(f"id {item_id!r}; allowed: letters, digits, dot, dash and underscore, 100 at most")
    item = Item(number, item_id, request, settings, start, "")
    checked(settings, item.kind)
    folder, ending = ("answers", ANSWERS) if item.kind == "text" else ("pictures", PICTURES)
    return Item(number, item_id, request, settings, start, f"{folder}/{item_id}{ending}")


def _guess(stated: Mapping[str, Any]) -> str:
    """The task of a line that does not name it."""
    if {"mask", "boxes", "expand"} & set(stated):
        return "inpaint"
    return "edit" if {"image", "images"} & set(stated) else "generate"


def _request(kind: type, stated: Mapping[str, Any], own: set[str], beside: Path) -> Request | Asking:
    values = {name: stated[name] for name in own if name in stated}
    if not isinstance(values.get("prompt"), str) or not values["prompt"].strip():
        raise ValueError("no 'prompt', or an empty one")
    if "size" in stated:
        values |= read_size(str(stated["size"]))
    pictures = stated.get("images", stated.get("image"))
    if pictures is not None:
        listed = pictures if isinstance(pictures, list) else [pictures]
        values["images"] = tuple(Source.of(beside / str(one)) for one in listed)
    elif "images" in own and kind is not Asking:
        raise ValueError("no 'image'")
    if "mask" in values:
        values["mask"] = Source.of(beside / str(values["mask"]))
    try:
        return kind(**{name: _untupled(value) for name, value in values.items()})
    except TypeError as error:
        raise ValueError(f"not a request to {kind.name}: {error}") from error


def _whole(stated: Mapping[str, Any], name: str, default: int) -> int:
    value = stated.get(name, default)
    if type(value) is not int:
        raise ValueError(f"{name} must be a whole number, got {value!r}")
    return value


def _untupled(value: Any) -> Any:
    """JSON's lists as the tuples that requests and settings hold."""
    return tuple(_untupled(one) for one in value) if isinstance(value, list) else value
