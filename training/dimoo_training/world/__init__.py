"""A small world of shapes: scenes, their pictures, an oracle, captions, questions, edits and splits."""

from .captions import FAMILIES, Caption, describe, report, sample_caption, scene_for
from .edits import KINDS as EDIT_KINDS
from .edits import Edit, edit_holds, edit_scene, sample_edit
from .facts import RELATIONS, Claim, Pattern, Relation
from .oracle import Parsed, parse, parse_batch
from .questions import KINDS as QUESTION_KINDS
from .questions import Question, ask, sample_question
from .references import REFERENCES, Reference, restyle
from .render import RGB, render, render_batch
from .scene import GRID, SIDE_PX, WORLDS, Object, Scene, World
from .splits import (
    caption_held_out,
    held_out,
    test_caption,
    test_edit,
    test_reference,
    test_scene,
    train_caption,
    train_edit,
    train_reference,
    train_scene,
)
from .words import PLACES, reword

__all__ = [
    "EDIT_KINDS",
    "FAMILIES",
    "GRID",
    "PLACES",
    "QUESTION_KINDS",
    "REFERENCES",
    "RELATIONS",
    "RGB",
    "SIDE_PX",
    "WORLDS",
    "Caption",
    "Claim",
    "Edit",
    "Object",
    "Parsed",
    "Pattern",
    "Question",
    "Reference",
    "Relation",
    "Scene",
    "World",
    "ask",
    "caption_held_out",
    "describe",
    "edit_holds",
    "edit_scene",
    "held_out",
    "parse",
    "parse_batch",
    "render",
    "render_batch",
    "report",
    "restyle",
    "reword",
    "sample_caption",
    "sample_edit",
    "sample_question",
    "scene_for",
    "test_caption",
    "test_edit",
    "test_reference",
    "test_scene",
    "train_caption",
    "train_edit",
    "train_reference",
    "train_scene",
]
