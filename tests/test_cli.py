"""The `dimoo` command: pictures that can be repeated, errors in one line, and nothing lost or overwritten."""

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

import dimoo
from dimoo.cli import COMMANDS, app
from dimoo.cli.flags import Sampling, flag_of
from dimoo.images import read_parameters

ROOT = Path(__file__).parents[1]


def pixels(path):
    return np.asarray(Image.open(path).convert("RGB"))


# Help.

PROBE = """
import sys
from typer.testing import CliRunner
from dimoo.cli import COMMANDS, app
for words in (["--help"], *([name, "--help"] for name in COMMANDS)):
    assert CliRunner().invoke(app, words).exit_code == 0
print(sorted({"torch", "transformers", "diffusers", "numpy"} & set(sys.modules)))
"""


def test_help_imports_nothing_heavy():
    done = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True, cwd=ROOT)
    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr


def test_python_m_dimoo():
    done = subprocess.run([sys.executable, "-m", "dimoo", "--version"], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout.strip() == f"dimoo {dimoo.__version__}"


def test_help_lists_every_command(cli):
    shown = cli("--help").output
    assert all(re.search(rf"\b{name}\b", shown) for name in COMMANDS)
    assert CliRunner().invoke(app, []).output == shown


def test_flags_are_the_settings_and_their_help_names_every_variant(cli):
    from dimoo.cache import CACHES
    from dimoo.sampling import ANNEALINGS, NOISES, QUOTAS
    from dimoo.settings import SCALED, Settings

    assert set(vars(Sampling())) == set(vars(Settings())) - {"block_length"}
    assert (flag_of("num_inference_steps"), flag_of("top_k"), flag_of("seed")) == ("--steps", "--top-k", "--seed")
    words = cli("generate", "--help").output
    assert not [name for table in (CACHES, ANNEALINGS, NOISES, QUOTAS, SCALED) for name in table if name not in words]


# Drawing.


def test_generate_says_path_seed_and_seconds_and_draws_what_python_draws(cli, tiny):
    shown = cli("generate", "a red circle", "--seed", 0, "--out", "x.png").stdout
    assert re.fullmatch(r"x\.png  32x32  seed 0  \d+\.\d\d s\n", shown)
    made = tiny.generate("a red circle", seed=0).images[0]
    assert np.array_equal(pixels("x.png"), np.asarray(made))


def test_pictures_carry_everything_that_made_them(cli, tiny_folder):
    cli("generate", "a star", "--seed", 5, "-n", 2, "--size", "32x64", "--cache", "max-logit", "--top-k", 9)
    stated = read_parameters("out/a-star_5_1.png")
    wanted = {
        "dimoo": dimoo.__version__, "task": "generate", "model": str(tiny_folder), "prompt": "a star", "seed": 5,
        "index": 1, "height": 32, "width": 64, "num_inference_steps": 4, "guidance_scale": 2.0, "guidance": "text",
        "temperature": 1.0, "quota": "cosine", "cache": "max-logit", "top_k": 9, "anneal": "constant",
        "noise": "float32", "forwards": 8, "device": "cpu", "dtype": "float32",
    }  # fmt: skip
    assert {name: stated.get(name) for name in wanted} == wanted
    assert "seconds" not in stated and None not in stated.values()


def test_each_picture_of_a_batch_is_repeated_to_the_byte(cli):
    cli("generate", "a star", "a heart", "--seed", 3, "-n", 2, "--temperature", 0.7)
    made = sorted(Path("out").glob("*.png"))
    assert [read_parameters(path)["index"] for path in made] == [2, 3, 0, 1]  # hearts, then stars
    for path in made:
        cli("generate", "--from", path, "--out", "again.png")
        assert Path("again.png").read_bytes() == path.read_bytes()


def test_the_seed_of_an_unseeded_picture_is_said_and_repeats_it(cli):
    seed = re.search(r"seed (\d+)", cli("generate", "a star", "--out", "a.png").stdout)[1]
    cli("generate", "a star", "--seed", seed, "--out", "b.png")
    assert Path("a.png").read_bytes() == Path("b.png").read_bytes()


def test_flags_override_what_a_picture_says_and_are_said(cli):
    cli("generate", "a star", "--seed", 1, "--out", "a.png")
    said = cli("generate", "a heart", "--from", "a.png", "--steps", 3, "--seed", 1, "--index", 2, "-o", "b.png").stderr
    assert said.strip() == "changed: index 0 -> 2, steps 4 -> 3, prompt 'a star' -> 'a heart'"
    cli("generate", "a heart", "--steps", 3, "--seed", 1, "--index", 2, "--out", "c.png")
    assert np.array_equal(pixels("b.png"), pixels("c.png"))


def test_repeating_tells_of_other_weights_versions_and_parameters(cli, tiny_folder):
    from dimoo.images import save_png

    cli("generate", "a star", "--seed", 1, "--out", "a.png")
    stated = {**read_parameters("a.png"), "dimoo": "0.0.1", "model_fingerprint": "other", "magic": 1}
    save_png(Image.open("a.png"), "old.png", stated)
    said = cli("generate", "--from", "old.png", "--out", "b.png").stderr
    assert "made by dimoo 0.0.1" in said and "weights" in said and "leaves out: magic" in said
    assert "weights" not in cli("generate", "--from", "old.png", "--model", tiny_folder, "--out", "b.png").stderr


def test_reduced_precision_is_kept_and_repeated(cli):
    cli("generate", "a star", "--seed", 1, "--dtype", "bfloat16", "--out", "a.png")
    cli("generate", "--from", "a.png", "--out", "b.png")
    assert read_parameters("b.png")["dtype"] == "bfloat16"
    assert Path("a.png").read_bytes() == Path("b.png").read_bytes()


# Files.


def test_a_named_file_is_replaced_and_a_folder_only_grows(cli):
    for _ in range(2):
        cli("generate", "a star", "--seed", 1, "--out", "x.png")
        cli("generate", "a star", "--seed", 1, "--out", "folder")
    assert {str(path) for path in Path().rglob("*.png")} == {
        "x.png", "folder/a-star_1_0.png", "folder/a-star_1_0-2.png"
    }  # fmt: skip


def test_several_pictures_of_one_name_are_numbered(cli):
    cli("generate", "a star", "-n", 2, "--out", "new/x.png")
    assert sorted(path.name for path in Path("new").iterdir()) == ["x-1.png", "x-2.png"]


@pytest.mark.parametrize(
    "prompt", ["../../escape", "/etc/passwd", "-rf *", "[/red] [bold", "日本 🎨", "a\0b\n", "x" * 400]
)
def test_any_prompt_makes_a_safe_file(cli, tmp_path, prompt):
    cli("generate", "--seed", 1, "--steps", 1, "--", prompt)
    (made,) = tmp_path.rglob("*.png")
    assert made.parent == tmp_path / "out" and len(made.name.encode()) < 120
    assert read_parameters(made)["prompt"] == prompt


def test_previews_are_saved_on_the_way(cli):
    cli("generate", "a star", "--seed", 1, "--out", "x.png", "--preview-every", 2)
    assert sorted(path.name for path in Path().glob("*.png")) == ["x-step002.png", "x-step004.png", "x.png"]
    half, last = read_parameters("x-step002.png"), read_parameters("x-step004.png")
    assert (half["step"], last["step"], half["prompt"]) == (2, 4, "a star")
    assert (pixels("x-step002.png") == 128).all(-1).mean() > 0.2  # open cells are grey
    assert np.array_equal(pixels("x-step004.png"), pixels("x.png"))


def test_a_picture_that_cannot_be_leaves_no_file(cli):
    cli("generate", "a star", "--size", "30x32", code=2)
    assert not list(Path("out").iterdir())


def test_a_picture_that_is_stopped_leaves_no_file(cli, monkeypatch):
    def stop(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr("dimoo.pipeline.DiMOOPipeline.run", stop)
    result = cli("generate", "a star", code=130)
    assert result.stderr == "stopped\n" and not list(Path("out").iterdir())


# Editing and filling.

MADE_FROM = {
    "edit": ("edit", "photo.png", "make it green", "--image-guidance", 1),
    "edit of two": ("edit", "photo.png", "--kind", "image_ref_transfer", "--image", "mask.png"),
    "box": ("inpaint", "photo.png", "a star", "--box", "8,8,24,24", "--box", "40,40,48,48"),
    "mask": ("inpaint", "photo.png", "a star", "--mask", "mask.png", "--no-preserve"),
    "expand": ("inpaint", "photo.png", "a star", "--expand", "16,0,16,0"),
}


@pytest.fixture
def mask(tmp_path):
    picture = Image.new("L", (64, 64))
    picture.paste(255, (0, 0, 32, 16))
    picture.save(tmp_path / "mask.png")


@pytest.mark.parametrize("words", MADE_FROM.values(), ids=MADE_FROM)
def test_pictures_from_pictures_are_repeated_to_the_byte(cli, photo_file, mask, words):
    cli(*words, "--seed", 2, "--out", "x.png")
    cli("generate", "--from", "x.png", "--out", "again.png")
    assert Path("x.png").read_bytes() == Path("again.png").read_bytes()
    stated = read_parameters("x.png")["images"][0]
    assert stated["path"] == "photo.png" and len(stated["sha256"]) == 64


def test_filling_keeps_what_is_outside(cli, photo_file, photo):
    cli("inpaint", photo_file, "a star", "--box", "8,8,24,24", "--seed", 1, "--out", "x.png")
    same = (pixels("x.png") == np.asarray(photo)).all(-1)
    assert same[:8].all() and same[24:].all() and not same[8:24, 8:24].all()


def test_a_fitted_source_is_said(cli, photo):
    photo.resize((200, 100)).save("wide.png")
    assert re.search(r"the source is 100x200; it was fitted to \d+x\d+", cli("edit", "wide.png", "go").stderr)


def test_moved_sources_are_found_and_changed_ones_refused(cli, photo_file, tmp_path, monkeypatch):
    (tmp_path / "work").mkdir()
    cli("edit", photo_file, "make it green", "--seed", 2, "--out", "x.png")
    monkeypatch.chdir(tmp_path / "work")  # the path is relative to another folder now, the picture's own
    cli("generate", "--from", "../x.png", "--out", "again.png")
    assert np.array_equal(pixels("again.png"), pixels("../x.png"))
    Image.new("RGB", (64, 64)).save("../photo.png")
    assert "is not the picture it was" in cli("generate", "--from", "../x.png", code=2).stderr
    Path("../photo.png").unlink()
    assert "photo.png is neither there nor in" in cli("generate", "--from", "../x.png", code=2).stderr


# Answers.


def test_ask_prints_nothing_but_the_answer(cli, photo_file, tiny, photo):
    result = cli("ask", "what is it?", photo_file, "--seed", 1, "--turn", "is it red? = no")
    answer = tiny.ask("what is it?", photo, seed=1, history=[("is it red?", "no")]).texts[0]
    assert result.stdout == f"{answer}\n" and result.stderr == ""


def test_ask_in_json(cli, photo_file):
    told = json.loads(cli("ask", "what?", photo_file, "--length", 6, "--steps", 2, "--seed", 1, "--json").stdout)
    wanted = {"question": "what?", "length": 6, "num_inference_steps": 2, "seed": 1, "task": "ask"}
    assert {name: told[name] for name in wanted} == wanted
    assert told["images"][0]["path"] == photo_file and {"answer", "forwards", "seconds", "model"} <= set(told)


def test_a_conversation_keeps_its_turns(cli, photo_file, tiny_folder, monkeypatch, capsys):
    from dimoo.cli import ask
    from dimoo.cli.answer import Answerer
    from dimoo.cli.flags import Machine, Start

    typed = iter(["what?", "why?", ""])
    monkeypatch.setattr("builtins.input", lambda prompt: next(typed))
    answerer = Answerer.of([photo_file], [], None, {}, Start(seed=1), Machine(model=str(tiny_folder)))
    ask.talk(lambda question: answerer.reply(question)["answer"])
    assert [question for question, _ in answerer.turns] == ["what?", "why?"]
    assert capsys.readouterr().out == "".join(f"{answer}\n" for _, answer in answerer.turns)
    assert ask.split([photo_file]) == (None, [photo_file]) and ask.split(["what?", photo_file]) == (
        "what?",
        [photo_file],
    )
