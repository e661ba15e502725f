"""`make demo`: a model draws, edits, fills and answers, and the oracle says what it sees.

Pictures and a report land in one folder; those of an earlier run are replaced. A wrong picture is reported as wrong
and is no failure: the exit code is 0.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.text import Text

from dimoo.cli import console
from dimoo.cli.answer import Answerer
from dimoo.cli.destination import Destination
from dimoo.cli.draw import draw_one
from dimoo.cli.flags import Machine, Output
from dimoo.cli.group import explain
from dimoo.cli.requests import Drawing, Editing, Filling, Request
from dimoo.cli.session import Session, load
from dimoo.cli.sources import Source
from dimoo.images import load_image, safe_filename, save_png, sheet
from dimoo.settings import Settings
from dimoo_training import demo_check as check
from dimoo_training.demo_check import Judge, Verdict

SIDE = 64
HEADINGS = ("task", "asked", "seconds", "right", "the oracle reads")


@dataclass(frozen=True)
class Row:
    """One thing that was asked for, and the picture it became or is about."""

    task: str
    asked: str
    file: str
    seconds: float
    verdict: Verdict

    def cells(self) -> tuple[str, ...]:
        return self.task, self.asked, f"{self.seconds:.2f}", "yes" if self.verdict.right else "no", self.verdict.read


@dataclass
class Demo:
    """One run, and everything it made so far."""

    session: Session
    out: Path
    seed: int
    rows: list[Row] = field(default_factory=list)

    def run(self) -> None:
        drawn = {prompt: self.make(Drawing(prompt, SIDE, SIDE), prompt, check.shows(claim))
                 for prompt, claim in check.DRAWINGS.items()}  # fmt: skip
        circle, pair = drawn[check.CIRCLE], drawn[check.PAIR]
        self.make(Editing(check.INSTRUCTION, self.sources(check.CIRCLE)), "edit", check.recoloured(circle))
        filling = Filling(check.FILLING, self.sources(check.PAIR), boxes=(check.hole(pair),))
        self.make(filling, "inpaint", check.shows(check.FILLED))
        self.ask(check.QUESTION, check.CIRCLE, circle)
        self.save_sheet()
        self.save_report()

    def path(self, name: str) -> Path:
        return self.out / safe_filename(name, self.seed)

    def sources(self, name: str) -> tuple[Source, ...]:
        return (Source.of(self.path(name)),)

    def make(self, request: Request, name: str, judge: Judge) -> np.ndarray:
        """Make, save and judge one picture; (64, 64, 3) uint8."""
        path = self.path(name)
        output = Output(strip=name == check.PAIR)
        made = draw_one(self.session, request, Settings(), (self.seed, 0), path, Destination(self.out), output)
        pixels = np.asarray(made.picture)
        self.rows.append(Row(request.name, request.prompt, path.name, made.seconds, judge(pixels)))
        return pixels

    def ask(self, question: str, name: str, pixels: np.ndarray) -> None:
        """Ask about a picture that was made."""
        defaults, path = self.session.pipeline.defaults, self.path(name)
        settings = Settings().filled(defaults, "text")
        pictures = [load_image(path)]
        answerer = Answerer(self.session, settings, defaults.text_length, (self.seed, 0), (), pictures)
        told = answerer.reply(question)
        verdict = check.answered(told["answer"], pixels)
        self.rows.append(Row("ask", question, path.name, told["seconds"], verdict))

    def save_sheet(self) -> None:
        made = [row for row in self.rows if row.task != "ask"]
        page = sheet([self.out / row.file for row in made], 3, [row.asked for row in made], scale=3)
        save_png(page, self.out / "sheet.png", {"prompt": "all pictures of the demo", "seed": self.seed})

    def save_report(self) -> None:
        """report.md with every row and its picture."""
        lines = [
            f"# What {self.session.model} makes", "",
            f"Seed {self.seed}, {self.session.dtype} on {self.session.device}. {self.summary()}", "",
            f"| picture | {' | '.join(HEADINGS)} |", "|---" * (len(HEADINGS) + 1) + "|",
            *(f"| ![{row.asked}]({row.file}) | {' | '.join(map(safe, row.cells()))} |" for row in self.rows),
            "", f"![steps]({self.path(check.PAIR).stem}-steps.png)", "",
        ]  # fmt: skip
        (self.out / "report.md").write_text("\n".join(lines), "utf-8")

    def summary(self) -> str:
        right = sum(row.verdict.right for row in self.rows)
        return f"{right} of {len(self.rows)} are right, read by the world's oracle."


def safe(cell: str) -> str:
    """A cell of a Markdown table."""
    return console.one_line(cell).replace("|", "\\|")


def show(demo: Demo) -> None:
    styles = {"yes": "green", "no": "red"}
    rows = [[Text(cell, styles.get(cell, "")) for cell in row.cells()] for row in demo.rows]
    console.table(f"What {demo.session.model} made with seed {demo.seed}", HEADINGS, rows)
    console.out.print(Text(f"{demo.summary()} Pictures and report.md: {demo.out}"), soft_wrap=True)


def main(
    out: Annotated[Path, typer.Option(help="The folder of the demo; its pictures are replaced.")] = Path("out/demo"),
    model: Annotated[str, typer.Option(help="dimoo-tiny, or a folder of a model of the same world.")] = "dimoo-tiny",
    seed: Annotated[int, typer.Option(help="Of every picture.")] = 0,
) -> None:
    """Draw, edit, fill and answer, and let the oracle judge."""
    try:
        demo = Demo(load(Machine(model=model)), out, seed)
        demo.run()
        show(demo)
    except (Exception, KeyboardInterrupt) as error:
        sys.exit(explain(error))


if __name__ == "__main__":
    typer.run(main)
