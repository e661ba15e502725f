"""Search at test time: several tries of a picture, and the best by the model's own judgement (dMLLM-TTS, 2512.19433).

The loop stays what it is: a search runs it over stretches of its steps, and between them keeps some tries and
branches them. Without a choice to make, a stretch after a stretch gives the ids of one run to the bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from torch import Tensor

from dimoo.canvas import Canvas, Row
from dimoo.sampling import Step, denoise
from dimoo.verify import Checks, scores

if TYPE_CHECKING:
    from dimoo.tasks.base import Codec

FAR = 2**40
"""Distance between the random streams of two tries of one sample; the first try has the sample's own."""


@dataclass
class Try:
    """One try of sample number `sample`: its ids so far, and its random stream."""

    sample: int
    ids: Tensor
    stream: tuple[int, int]


@dataclass
class Tries:
    """What a search works with.

    rows, prompts, seeds: of the samples. parts: the slots of the loop (`scheduler`, `guider`, ...). forwards: sequences
    sent through the network so far, by the loop and by the checks. on_step: as of the loop, may end everything.
    """

    denoiser: Any
    codec: Codec
    rows: Sequence[Row]
    prompts: Sequence[str]
    seeds: Sequence[tuple[int, int]]
    parts: dict[str, Any]
    steps: int
    checks: Checks
    on_step: Callable[[Step], bool | None] | None = None
    forwards: int = 0
    stopped: bool = False
    numbers: list[int] = field(default_factory=list)

    def begin(self, count: int) -> list[Try]:
        """`count` empty tries of each sample."""
        self.numbers = [0] * len(self.rows)
        return [self.new(k, row.answer) for k, row in enumerate(self.rows) for _ in range(count)]

    def new(self, sample: int, ids: Tensor) -> Try:
        """Another try, with a random stream nobody has had."""
        number, (seed, index) = self.numbers[sample], self.seeds[sample]
        self.numbers[sample] += 1
        return Try(sample, ids, (seed, index + number * FAR))

    def advance(self, tries: list[Try], start: int, stop: int) -> list[Try]:
        """Steps `start` to `stop` - 1 of the schedule, for all tries as one batch."""
        stretch = Stretch.of(self.parts["scheduler"].quota, self.rows, self.steps, start, self.codec.vocab.mask)
        last = stretch.last(stop)
        if last is None or self.stopped:
            return tries
        rows = [replace(self.rows[one.sample], answer=one.ids) for one in tries]
        device = getattr(self.denoiser, "device", "cpu")
        canvas = Canvas(rows, self.codec.vocab, [one.stream for one in tries], device)

        def on_step(step: Step) -> bool:
            if self.on_step is not None and self.on_step(replace(step, tick=step.number)):
                self.stopped = True
            return self.stopped or step.number >= last

        parts = self.parts | {"scheduler": replace(self.parts["scheduler"], quota=stretch)}
        self.forwards += len(tries) * denoise(canvas, self.denoiser, **parts, on_step=on_step)
        return [replace(one, ids=canvas.row(k)) for k, one in enumerate(tries)]

    def best(self, tries: list[Try], count: int) -> list[Try]:
        """The `count` best tries of each sample, best first; of equals the earlier. All of them, and no checks, when
        there are not more."""
        if len(tries) <= count * len(self.rows):
            return tries
        asked = [self.checks(prompt) for prompt in self.prompts]
        images = [one.ids[1:-1] for one in tries]
        found = scores(self.denoiser, self.codec, [asked[one.sample] for one in tries], images).tolist()
        self.forwards += sum(len(asked[one.sample]) for one in tries)
        kept: list[Try] = []
        for sample in range(len(self.rows)):
            own = [k for k, one in enumerate(tries) if one.sample == sample]
            kept += [tries[k] for k in sorted(own, key=lambda k: -found[k])[:count]]
        return kept

    def branch(self, tries: list[Try], count: int) -> list[Try]:
        """Each try `count` times: it goes on as it would have, the others on streams of their own."""
        return [one if k == 0 else self.new(one.sample, one.ids) for one in tries for k in range(count)]

    def canvas(self, tries: list[Try]) -> Canvas:
        """One try a sample as a canvas."""
        rows = [replace(row, answer=one.ids) for row, one in zip(self.rows, tries, strict=True)]
        return Canvas(rows, self.codec.vocab, self.seeds, getattr(self.denoiser, "device", "cpu"))


@dataclass(frozen=True)
class Stretch:
    """A quota that goes on from a later step of another one: masks left -> commits, 0 before that step."""

    commits: dict[int, list[int]]
    start: int

    @classmethod
    def of(cls, quota, rows: Sequence[Row], steps: int, start: int, mask: int) -> Stretch:
        totals = {int((row.answer == mask).sum()) for row in rows}
        whole = {total: (quota(total, steps) + [0] * steps)[:steps] for total in totals}
        return cls({sum(plan[start:]): [0] * start + plan[start:] for plan in whole.values()}, start)

    def __call__(self, masks: int, steps: int) -> list[int]:
        return self.commits.get(masks) or [0] * steps

    def last(self, stop: int) -> int | None:
        """The last step before `stop` at which anything is committed."""
        busy = [s for plan in self.commits.values() for s in range(self.start, min(stop, len(plan))) if plan[s]]
        return max(busy, default=None)


@dataclass(frozen=True)
class BestOf:
    """Linear search: N whole tries, the best of them. O(N T) forwards."""

    def __call__(self, tries: Tries, count: int) -> list[Try]:
        made = tries.advance(tries.begin(count), 0, tries.steps)
        return tries.best(made, 1)


@dataclass(frozen=True)
class Hierarchical:
    """N tries for the first part of the steps; then at each step fewer, branched from the best; the end with N/4.

    About O(N + T) forwards. `wait`: share of the steps before the first choice, since early scores are noise.
    `decay`: by what factor the number of tries falls with each step.
    """

    wait: float = 0.25
    decay: float = 2.0

    def __post_init__(self):
        if not 0 < self.wait < 1 or not self.decay > 1:
            raise ValueError(f"need 0 < wait < 1 and decay > 1, got wait={self.wait} and decay={self.decay}")

    def __call__(self, tries: Tries, count: int) -> list[Try]:
        survivors, at = max(1, count // 4), max(1, int(self.wait * tries.steps))
        made, width = tries.advance(tries.begin(count), 0, at), float(count)
        while int(width) > survivors and at < tries.steps:
            width = max(width / self.decay, survivors)
            made = tries.branch(tries.best(made, survivors), max(1, int(width) // survivors))
            made, at = tries.advance(made, at, at + 1), at + 1
        return tries.best(tries.advance(made, at, tries.steps), 1)


SEARCHES = {"best-of": BestOf, "hierarchical": Hierarchical}


def search(method, tries: Tries, count: int) -> tuple[Canvas, int]:
    """The chosen try of each sample, and the forwards (checks included) a sample took."""
    chosen = method(tries, count)
    return tries.canvas(chosen), round(tries.forwards / len(tries.rows))
