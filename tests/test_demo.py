"""The demo: it runs on any model of the world, and its judges agree with rendered scenes."""

from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from dimoo.cli.flags import Machine
from dimoo.cli.session import load
from dimoo.images import read_parameters
from dimoo_training import demo_check as check
from dimoo_training.demo import Demo, show
from dimoo_training.world import WORLDS, Object, Scene, render, scene_for

CIRCLE = Scene((Object("circle", "red", "large", (1, 1)),), "white")
GREEN = Scene((Object("circle", "green", "large", (1, 1)),), "white")


def test_the_demo_leaves_pictures_a_sheet_steps_and_a_report(tiny_folder, tmp_path, capsys):
    demo = Demo(load(Machine(model=str(tiny_folder))), tmp_path, seed=0)
    demo.run()
    show(demo)
    assert [row.task for row in demo.rows] == ["generate"] * 4 + ["edit", "inpaint", "ask"]
    report = (tmp_path / "report.md").read_text("utf-8")
    for row in demo.rows:
        assert read_parameters(tmp_path / row.file)["seed"] == 0 and row.file in report
    assert Image.open(tmp_path / "sheet.png").width > 3 * 3 * 64
    steps = next(tmp_path.glob("*-steps.png"))
    assert read_parameters(steps)["width"] == 64 < Image.open(steps).width and steps.name in report
    assert "of 7 are right" in report and "of 7 are right" in capsys.readouterr().out


@pytest.mark.parametrize("prompt", check.DRAWINGS)
def test_drawings_are_judged_by_what_they_show(prompt):
    claim, rng = check.DRAWINGS[prompt], np.random.default_rng(0)
    scene = scene_for(claim, WORLDS["first"], rng)
    assert check.shows(claim)(render(scene)).right
    assert not check.shows(claim)(render(Scene(scene.objects[1:], scene.background))).right
    assert check.shows(claim)(np.full((64, 64, 3), (255, 0, 255), np.uint8)) == check.Verdict(False, "unreadable")


def test_edits_are_judged_against_their_source():
    judge = check.recoloured(render(CIRCLE))
    assert judge(render(GREEN)).right
    assert not judge(render(CIRCLE)).right and not judge(render(replace(GREEN, background="black"))).right
    assert not check.recoloured(render(GREEN))(render(GREEN)).right  # nothing was to be changed


def test_answers_are_judged_by_the_picture():
    assert check.answered("Red.", render(CIRCLE)).right
    assert not check.answered("green", render(CIRCLE)).right
    assert not check.answered("red", render(Scene((), "white"))).right


def test_the_hole_is_the_cell_of_the_square():
    scene = Scene((Object("square", "blue", "large", (2, 3)), *CIRCLE.objects), "white")
    assert check.hole(render(scene)) == (48, 32, 64, 48)
    assert check.hole(render(CIRCLE)) == (32, 16, 48, 32)
