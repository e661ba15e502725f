"""Batches: every line once, in order, through kills and reruns, and what is wrong is said by its line."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from PIL import Image

from dimoo.batch import BadLines, read_geneval, read_items
from dimoo.batch.worker import Worker
from dimoo.images import read_parameters

ROOT = Path(__file__).parents[1]


def write(path: Path, *lines) -> Path:
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines), "utf-8")
    return path


def manifest(folder: Path, name="manifest.jsonl") -> list[dict]:
    return [json.loads(line) for line in (folder / name).read_text("utf-8").splitlines()]


def test_bom_line_ends_and_blank_lines_do_not_matter(tmp_path):
    text = '\ufeff{"prompt": "a\u2028b"}\r\n\r\n  \r\n"a star"\r\n{"prompt": "c", "id": "last"}'
    (tmp_path / "in.jsonl").write_bytes(text.encode())
    items = read_items(tmp_path / "in.jsonl", seed=9)
    assert [(item.line, item.id, item.start) for item in items] == [
        (1, "000001", (9, 0)), (4, "000004", (9, 1)), (5, "last", (9, 2)),
    ]  # fmt: skip
    assert [item.request.prompt for item in items] == ["a\u2028b", "a star", "c"]


WRONG = [
    ('{"prompt": "a"', "not JSON"),
    ("[1]", "got list"),
    ({"id": "x"}, "no 'prompt'"),
    ({"prompt": "a", "stepz": 3}, "did you mean 'steps'"),
    ({"prompt": "a", "steps": 0}, "--steps must be a whole number of at least 1"),
    ({"prompt": "a", "task": "sing"}, "unknown task 'sing'"),
    ({"prompt": "a", "image": "missing.png"}, "missing.png"),
    ({"prompt": "a", "id": "../up"}, "allowed: letters"),
    ({"prompt": "a", "id": "ONE"}, "id 'ONE' is that of line 1 already"),
    ({"prompt": "a", "seed": "1"}, "seed must be a whole number"),
]


def test_wrong_lines_are_all_named(tmp_path):
    path = write(tmp_path / "in.jsonl", {"prompt": "a", "id": "one"}, *(line for line, _ in WRONG))
    with pytest.raises(BadLines) as caught:
        read_items(path)
    assert [item.id for item in caught.value.good] == ["one"]
    for number, ((_, words), (line, said)) in enumerate(zip(WRONG, caught.value.problems, strict=True), 2):
        assert line == number and words in said
    assert "line 2: not JSON" in str(caught.value)


@pytest.fixture
def mixed(tmp_path, photo):
    """A file with every kind of task, and one line that fails only when it is tried."""
    photo.save(tmp_path / "photo.png")
    photo.convert("L").save(tmp_path / "mask.png")
    return write(
        tmp_path / "in.jsonl",
        {"prompt": "a star", "seed": 5, "steps": 3},
        {"prompt": "what is there?", "task": "ask", "image": "photo.png", "id": "question", "length": 6},
        {"prompt": "a moon", "size": "33x33"},
        {"prompt": "make it red", "image": "photo.png", "edit": "edit_replace"},
        {"prompt": "a hole", "image": "photo.png", "mask": "mask.png"},
        {"prompt": "a circle", "size": "16x48"},
    )


def test_every_kind_of_line(cli, mixed, tiny, tiny_folder, tmp_path):
    result = cli("batch", mixed, "--out", "out", "--model", tiny_folder, code=1)
    rows = manifest(tmp_path / "out")
    assert [(row["line"], row["status"]) for row in rows] == [
        (1, "done"), (2, "done"), (3, "failed"), (4, "done"), (5, "done"), (6, "done"),
    ]  # fmt: skip
    (failed,) = manifest(tmp_path / "out", "failures.jsonl")
    assert "multiple of 8, got 33" in failed["error"] and "1 failed" in result.output
    wanted = tiny.generate("a star", seed=5, num_inference_steps=3).images[0]
    assert Image.open(tmp_path / "out" / rows[0]["file"]).tobytes() == wanted.tobytes()
    question = tiny.ask("what is there?", Image.open(tmp_path / "photo.png"), length=6, seed=0, index=1)
    assert json.loads((tmp_path / "out" / rows[1]["file"]).read_text())["answer"] == question.texts[0]
    last = read_parameters(tmp_path / "out" / rows[5]["file"])
    assert (last["height"], last["width"], last["seed"], last["index"]) == (16, 48, 0, 5)
    cli("generate", "--from", Path("out") / rows[3]["file"], "--out", "again.png")
    assert Image.open("again.png").tobytes() == Image.open(Path("out") / rows[3]["file"]).tobytes()


def test_going_on_redoes_nothing_but_failures_and_changes(cli, tiny_folder, tmp_path, monkeypatch):
    lines = [{"prompt": f"picture {k}"} for k in range(5)]
    done, plain = [], Worker.answer
    monkeypatch.setattr(Worker, "answer", lambda self, items: done.extend(i.line for i in items) or plain(self, items))

    def run(*changed):
        done.clear()
        cli("batch", write(tmp_path / "in.jsonl", *changed), "--out", "out", "--model", tiny_folder, "--batch", 2)
        assert [row["prompt"] for row in manifest(tmp_path / "out")] == [line["prompt"] for line in changed]
        return sorted(done)

    assert run(*lines) == [1, 2, 3, 4, 5]
    assert run(*lines) == []
    journal = tmp_path / "out" / "journal.jsonl"
    journal.write_text(journal.read_text()[:-40])                       # a kill in the middle of a line
    (tmp_path / "out" / "pictures" / "000002.png").unlink()
    (tmp_path / "out" / "pictures" / ".half.part").write_bytes(b"half")
    assert run(*lines) == [2]
    assert not list((tmp_path / "out").rglob("*.part"))
    assert run(*lines[:3], {"prompt": "another"}, {"prompt": "more"}, {"prompt": "new"}) == [4, 5, 6]


def test_two_runs_do_not_share_a_folder(cli, tiny_folder, tmp_path):
    from filelock import FileLock

    write(tmp_path / "in.jsonl", "a star")
    (tmp_path / "out").mkdir()
    (tmp_path / "in.jsonl").write_text('"a star"\n')
    with FileLock(tmp_path / "out" / ".lock"):
        result = cli("batch", "in.jsonl", "--out", "out", "--model", tiny_folder, code=2)
    assert "another dimoo batch is writing here" in result.output


def test_bad_lines_stop_it_unless_left_out(cli, tiny_folder, tmp_path):
    write(tmp_path / "in.jsonl", '"a star"', "nonsense")
    result = cli("batch", "in.jsonl", "--out", "out", "--model", tiny_folder, code=2)
    assert "line 2: not JSON" in result.output and not (tmp_path / "out").exists()
    cli("batch", "in.jsonl", "--out", "out", "--model", tiny_folder, "--skip-bad", code=1)
    assert [row["line"] for row in manifest(tmp_path / "out")] == [1]


def test_geneval_layout(cli, tiny_folder, tmp_path):
    facts = [{"tag": "single_object", "include": [{"class": "bench", "count": 1}], "prompt": f"a bench {k}"}
             for k in range(2)]  # fmt: skip
    path = write(tmp_path / "meta.jsonl", facts[0], "", facts[1])
    assert [item.id for item in read_geneval(path, 2)] == ["00000-00000", "00000-00001", "00001-00000", "00001-00001"]
    cli("batch", path, "--out", "out", "--geneval", 2, "--model", tiny_folder)
    for place, stated in enumerate(facts):                              # as the public scorer reads it
        folder = tmp_path / "out" / f"{place:05}"
        with (folder / "metadata.jsonl").open() as file:
            assert json.load(file) == stated
        samples = sorted(os.listdir(folder / "samples"))
        assert samples == ["00000.png", "00001.png"]
        pictures = [Image.open(folder / "samples" / name).convert("RGB").tobytes() for name in samples]
        assert pictures[0] != pictures[1]
    digits = [name for name in os.listdir(tmp_path / "out") if name.isdigit()]
    assert len(digits) == 2


# In processes of their own.


def command(folder: Path, model: Path, *more) -> list[str]:
    return [sys.executable, "-m", "dimoo", "batch", "in.jsonl", "--out", "out", "--model", str(model), *more]


def environment() -> dict[str, str]:
    path = os.pathsep.join(str(ROOT / part) for part in ("", "kernels", "app", "training"))
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}


def complete(folder: Path, count: int) -> None:
    """`count` results, as many manifest lines, nothing half written."""
    rows = manifest(folder)
    assert [row["line"] for row in rows] == list(range(1, count + 1))
    assert all(row["status"] == "done" for row in rows)
    assert len(list((folder / "pictures").glob("*.png"))) == count and not list(folder.rglob("*.part"))
    for row in rows:
        Image.open(folder / row["file"]).load()


@pytest.mark.slow
def test_kill_in_the_middle_and_go_on(tiny_folder, tmp_path):
    write(tmp_path / "in.jsonl", *({"prompt": f"picture {k}", "steps": 24} for k in range(100)))
    run = {"cwd": tmp_path, "env": environment(), "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    first = subprocess.Popen(command(tmp_path, tiny_folder, "--batch", "4"), **run)
    pictures = tmp_path / "out" / "pictures"
    while len(list(pictures.glob("[0-9]*.png"))) < 20:
        assert first.poll() is None, "it ended before it was killed"
        time.sleep(0.002)
    first.send_signal(signal.SIGKILL)
    first.wait()
    before = {path.name: path.stat().st_mtime_ns for path in pictures.glob("[0-9]*.png")}
    assert 20 <= len(before) < 100
    subprocess.run(command(tmp_path, tiny_folder), check=True, **run)
    complete(tmp_path / "out", 100)
    assert {name: (pictures / name).stat().st_mtime_ns for name in before} == before, "a result was made twice"


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["local", "ray"])
def test_two_workers_make_the_same(engine, tiny, tiny_folder, tmp_path):
    if engine == "ray":
        pytest.importorskip("ray", reason="needs the extra [ray]")
    write(tmp_path / "in.jsonl", *({"prompt": f"picture {k}"} for k in range(12)))
    arguments = ("--workers", "2", "--batch", "3", "--engine", engine)
    subprocess.run(command(tmp_path, tiny_folder, *arguments), check=True, cwd=tmp_path, env=environment(), timeout=900)
    complete(tmp_path / "out", 12)
    wanted = tiny.generate("picture 7", seed=0, index=7).images[0]
    assert Image.open(tmp_path / "out" / "pictures" / "000008.png").tobytes() == wanted.tobytes()
