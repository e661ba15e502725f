"""A text problem: what is asked, one right answer, and the facts a checker needs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Problem:
    """`facts` is what the checker reads: the puzzle's own data, never the text."""

    text: str
    answer: str
    kind: str
    facts: tuple
