"""`dimoo ask`: answers in words, once or as a conversation."""

from __future__ import annotations

import json as js
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from dimoo.cli.flags import Machine, Sampling, Start

_passage = partial(typer.Option, rich_help_panel="Words that stand there already")


def ask(
    start: Start,
    sampling: Sampling,
    machine: Machine,
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="[QUESTION] [IMAGE]...", help="The question, then the pictures it is about."),
    ] = None,
    length: Annotated[
        int | None, typer.Option(help="Most tokens of the answer.", show_default="the model's own")
    ] = None,
    block_length: Annotated[
        int | None, typer.Option(help="Tokens that are written together.", show_default="the model's own")
    ] = None,
    turn: Annotated[
        list[str] | None, typer.Option(metavar="Q=A", help="An earlier question and its answer; several are allowed.")
    ] = None,
    fill: Annotated[
        str | None, _passage(metavar="TEXT", help='Fill the holes of a text, such as "a {1} circle on {2}".')
    ] = None,
    rewrite: Annotated[str | None, _passage(metavar="TEXT", help="Change a text in place, with --editing.")] = None,
    keep: Annotated[list[str] | None, _passage(metavar="WORDS", help="Of --rewrite: words that stay.")] = None,
    reopen: Annotated[list[str] | None, _passage(metavar="WORDS", help="... words that are decided anew.")] = None,
    stream: Annotated[bool, typer.Option("--stream", help="Show the answer as it fills up, open places as ░.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the answer with everything that made it.")] = False,
) -> None:
    """Answer a question, about pictures or without any; without a question, talk until Ctrl-D."""
    question, images = split(words or [])
    changed = any(given is not None for given in (fill, rewrite, keep, reopen))
    if question is None and not changed and not sys.stdin.isatty():
        raise ValueError('give a question, such as: dimoo ask "what is in the picture?" picture.png')
    from dimoo.cli.answer import Answerer
    from dimoo.cli.passage import Passage

    passage = Passage(fill, rewrite, tuple(keep or ()), tuple(reopen or ())) if changed else None
    settings = sampling.given() | ({} if block_length is None else {"block_length": block_length})
    answerer = Answerer.of(images, read_turns(turn or []), length, settings, start, machine, passage)
    if question is None and passage is None:
        return talk(lambda text: answerer.reply(text, stream)["answer"])
    answer = answerer.reply(question, stream)
    typer.echo(js.dumps(answer, ensure_ascii=False, sort_keys=True) if json else answer["answer"])


def split(words: list[str]) -> tuple[str | None, list[str]]:
    """(question, pictures); a first word that is a file is a picture, and there is no question then."""
    if not words or Path(words[0]).is_file():
        return None, words
    return words[0], words[1:]


def read_turns(texts: list[str]) -> list[tuple[str, str]]:
    """ "q=a" -> (q, a); the first = separates."""
    turns = [tuple(part.strip() for part in text.partition("=")[::2]) for text in texts]
    wrong = [text for text, turn in zip(texts, turns, strict=True) if not all(turn)]
    if wrong:
        raise ValueError(f'--turn is an earlier "question=answer", got {wrong[0]!r}')
    return turns


def talk(reply: Callable[[str], str]) -> None:
    """Questions from the keyboard until an empty line or the end of the input."""
    from dimoo.cli.console import note

    note("ask something; an empty line or Ctrl-D ends")
    while question := _next_question():
        typer.echo(reply(question))


def _next_question() -> str:
    try:
        return input("> ").strip()
    except EOFError:
        return ""
