"""What users get wrong is one clear line and exit code 2; what is nobody's mistake is told apart."""

import pytest
from typer.testing import CliRunner

from dimoo.cli import app

MISTAKES = {
    "no prompt": (("generate",), "say what to draw"),
    "empty prompt": (("generate", " "), "the prompt is empty"),
    "unknown flag": (("generate", "a", "--stepz", 3), "No such option: --stepz"),
    "not a number": (("generate", "a", "--steps", "many"), "--steps"),
    "no steps": (("generate", "a", "--steps", 0), "--steps must be a whole number of at least 1, got 0"),
    "negative guidance": (("generate", "a", "--guidance", -1), "--guidance must be 0 or more"),
    "top k": (("generate", "a", "--top-k", 0), "--top-k must be at least 1"),
    "min p": (("generate", "a", "--min-p", 2), "--min-p must lie in"),
    "interval": (("generate", "a", "--guidance-interval", "0.5"), "--guidance-interval takes 2 numbers"),
    "cache": (("generate", "a", "--cache", "max-logits"), "did you mean 'max-logit'?"),
    "guider": (("generate", "a", "--guider", "interval"), "unknown guider 'interval'"),
    "quota": (("generate", "a", "--quota", "sine"), "did you mean 'cosine'?"),
    "noise": (("generate", "a", "--noise", "loud"), "unknown noise 'loud'"),
    "anneal": (("generate", "a", "--anneal", "cubic"), "unknown annealing 'cubic'"),
    "no pictures": (("generate", "a", "-n", 0), "--num-images must be at least 1"),
    "index": (("generate", "a", "--index", -1), "--index must be 0 or more"),
    "preview": (("generate", "a", "--preview-every", 0), "--preview-every must be at least 1"),
    "size": (("generate", "a", "--size", "big"), "--size is HEIGHTxWIDTH in pixels"),
    "odd size": (("generate", "a", "--size", "30"), "height must be a positive multiple of 8, got 30"),
    "device": (("generate", "a", "--device", "tpu"), "unknown --device 'tpu'; allowed: auto, cpu, cuda"),
    "no such gpu": (("generate", "a", "--device", "cuda:99"), "see: dimoo doctor"),
    "dtype": (("generate", "a", "--dtype", "int8"), "unknown --dtype 'int8'"),
    "model": (("generate", "a", "--model", "nothing"), "no checkpoint 'nothing'"),
    "format": (("generate", "a", "--out", "x.jpg"), "allowed: .png"),
    "folder": (("generate", "a", "--out", "photo.png/x.png"), "cannot be a folder for pictures"),
    "from nothing": (("generate", "--from", "none.png"), "none.png: no such file"),
    "from a photo": (("generate", "--from", "photo.png"), "no DiMOO parameters in this picture"),
    "kind": (("edit", "photo.png", "go", "--kind", "edit_all"), "unknown kind of edit 'edit_all'"),
    "no instruction": (("edit", "photo.png"), "the prompt is empty"),
    "no picture": (("edit", "none.png", "go"), "none.png: no such file"),
    "missing argument": (("inpaint", "photo.png"), "Missing argument 'PROMPT'"),
    "no hole": (("inpaint", "photo.png", "a"), "say what to fill"),
    "two holes": (("inpaint", "photo.png", "a", "--box", "0,0,8,8", "--expand", "8,8,8,8"), "say what to fill"),
    "short box": (("inpaint", "photo.png", "a", "--box", "1,2,3"), "--box takes 4 whole numbers"),
    "box outside": (("inpaint", "photo.png", "a", "--box", "0,0,99,9"), "must lie in the picture of 64x64"),
    "no room": (("inpaint", "photo.png", "a", "--expand", "0,0,0,0"), "room must be"),
    "no question": (("ask", "photo.png"), "give a question"),
    "turn": (("ask", "what?", "--turn", "what"), '--turn is an earlier "question=answer"'),
    "length": (("ask", "what?", "--length", 0), "--length must be at least 1"),
    "uneven": (("ask", "what?", "--length", 10, "--block-length", 4), "or block lengths 1, 2, 5, 10"),
    "two passages": (("ask", "--fill", "a {1}", "--rewrite", "a b"), "give either --fill or --rewrite, not both"),
    "nothing to keep in": (("ask", "what?", "--keep", "a"), "give it with --rewrite"),
    "not in it": (("ask", "--rewrite", "a b", "--reopen", "c"), "'c' does not occur in the text 'a b'"),
    "no holes": (("ask", "--fill", "a b"), "nothing to fill"),
    "filled picture": (("ask", "what?", "photo.png", "--fill", "a {1}"), "leave out pictures and --length"),
    "inspect": (("inspect", "photo.png"), "no DiMOO parameters"),
    "doctor": (("doctor", "--model", "nothing"), "no checkpoint 'nothing'"),
    "recipe": (("train", "vq", "--recipe", "huge"), "unknown recipe 'huge'; there is: debug, small, tiny"),
    "no data": (("train", "tokenize", "absent.jsonl", "--model", "dimoo-tiny"), "no file absent.jsonl"),
    "no parts": (("train", "finetune", "--data", "x", "--model", "dimoo-tiny"), "no part-*.parquet in x; make them"),
    "no tokenizer": (("train", "sft", "--vq", "nowhere"), "nowhere holds no image tokenizer"),
    "command": (("genrate", "a"), "No such command 'genrate'"),
}


@pytest.mark.parametrize(("words", "said"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_one_clear_line(cli, photo_file, words, said):
    result = cli(*words, code=2)
    assert result.stderr.startswith("error: ") and result.stderr.count("\n") == 1
    assert said in result.stderr and result.stdout == ""


def test_sizes_of_edits_cannot_be_changed(cli, photo_file):
    cli("edit", photo_file, "go", "--seed", 1, "--out", "x.png")
    assert "leave out --size" in cli("generate", "--from", "x.png", "--size", "64", code=2).stderr


@pytest.mark.parametrize("words", [("--debug", "generate", " "), ("generate", " ", "--debug")])
def test_debug_lets_errors_through(cli, words):
    result = CliRunner().invoke(app, words)
    assert isinstance(result.exception, ValueError) and result.stderr == ""


FAILURES = {
    "disk": (OSError(28, "No space left on device"), "No space left on device"),
    "memory": (type("OutOfMemoryError", (RuntimeError,), {})(), "--dtype bfloat16"),
}


@pytest.mark.parametrize(("error", "said"), FAILURES.values(), ids=FAILURES)
def test_failures_that_are_nobodys_mistake(cli, monkeypatch, error, said):
    def fail(*args, **kwargs):
        raise error

    monkeypatch.setattr("dimoo.pipeline.DiMOOPipeline.run", fail)
    result = cli("generate", "a star", code=1)
    assert said in result.stderr and result.stderr.startswith("error: ")


def test_bugs_keep_their_traceback(cli, monkeypatch):
    monkeypatch.setattr("dimoo.pipeline.DiMOOPipeline.run", lambda *args, **kwargs: 1 / 0)
    assert isinstance(cli("generate", "a star", code=1).exception, ZeroDivisionError)
