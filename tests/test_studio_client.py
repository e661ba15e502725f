"""The studio through its own protocol, without a browser: every tab's work ends, and what it makes is kept."""

from __future__ import annotations

import time
from html import escape
from pathlib import Path

import httpx
import pytest
from PIL import Image

pytest.importorskip("gradio", reason="needs the extra [app]")
pytest.importorskip("openai", reason="needs the extra [dev]")

from gradio_client import Client, handle_file
from gradio_client.exceptions import AppError

from dimoo.images import read_parameters
from dimoo_app.studio import History, build, mount, samples


@pytest.fixture(scope="module")
def studio(tiny_folder, tmp_path_factory):
    """(server, history folder) of a studio with random weights."""
    from serving import Place

    from dimoo.pipeline import DiMOOPipeline

    folder = tmp_path_factory.mktemp("studio")
    pipeline = DiMOOPipeline.from_pretrained(tiny_folder)
    pipeline.set_progress_bar_config(disable=True)

    def dress(app):
        service = app.state.service
        return mount(app, build(service.session, service.engine, History(folder)))

    place = Place.start(pipeline, dress=dress)
    yield place, folder
    place.stop()


def test_each_login_has_a_history_that_nobody_else_reads(tiny, tmp_path):
    from serving import Place

    def dress(app):
        service = app.state.service
        page = build(service.session, service.engine, History(tmp_path))
        return mount(app, page, [("ann", "a"), ("bob", "b")])

    place = Place.start(tiny, dress=dress)
    try:
        ann, bob = (Client(place.address, auth=(name, name[0]), verbose=False, httpx_kwargs={"timeout": 120})
                    for name in ("ann", "bob"))  # fmt: skip
        gallery = ann.predict(prompt="a secret", api_name="/create")[2]
        (kept,) = History(tmp_path).of("ann").recent()
        assert History(tmp_path).of("bob").recent() == [] == History(tmp_path).recent()
        assert Path(_files(gallery)[0]).read_bytes() == kept.read_bytes(), "the owner gets the file itself"
        for client in (ann, bob):
            cookies = {"Cookie": "; ".join(f"{name}={value}" for name, value in client.cookies.items())}
            for path in (kept, tmp_path / "user-ann" / ".." / "user-ann" / kept.name):
                answer = httpx.get(f"{place.address}/gradio_api/file={path}", headers=cookies)
                assert answer.status_code == 403, "no file of the history has an address that can be guessed"
        assert httpx.get(f"{place.address}/gradio_api/file={kept}").status_code == 401
    finally:
        place.stop()


def _files(gallery) -> list[str]:
    """The files a gallery was given, as the client has fetched them."""
    value = gallery["value"] if isinstance(gallery, dict) else gallery
    return [entry["image"] for entry in value]


@pytest.fixture
def client(studio):
    return Client(studio[0].address, verbose=False, httpx_kwargs={"timeout": 120})


def newest(studio) -> tuple[Image.Image, dict]:
    path = History(studio[1]).recent(1)[0]
    return Image.open(path), read_parameters(path)


def test_the_api_routes_come_first(studio):
    place, _ = studio
    assert place.get("/healthz")[0] == 200 and "DiMOO studio" in place.get("/")[1]


def test_create(studio, client, tiny):
    client.predict(prompt="a star", count=2, number=5, locked=True, api_name="/create")
    picture, said = newest(studio)
    assert (said["prompt"], said["seed"]) == ("a star", 5)
    wanted = tiny.generate("a star", seed=5, index=said["index"]).images[0]
    assert picture.tobytes() == wanted.tobytes()


def test_edit(studio, client, tiny):
    source = samples.picture("circle")
    client.predict(image=handle_file(source), style=None, prompt="make it green", api_name="/edit")
    picture, said = newest(studio)
    assert (said["task"], said["prompt"]) == ("edit", "make it green")
    assert picture.tobytes() == tiny.edit("make it green", source, seed=said["seed"]).images[0].tobytes()


def test_ask(studio, client, tiny):
    said = client.predict(said=[], question="what is it?", api_name="/ask")[0]
    words = said[-1]["content"]
    words = words if isinstance(words, str) else words[0]["text"]
    assert words in (tiny.ask("what is it?", seed=0).texts[0], "(an empty answer)")


def test_text(client, tiny):
    answer = client.predict(prompt="a star", api_name="/text")[3]
    assert answer == tiny.ask("a star", seed=0).texts[0]


def test_compare(studio, client, tiny):
    shown = client.predict(prompt="a star", api_name="/compare")[0]
    assert shown.count("<figure>") == 3 and "forwards" in shown
    made = len(History(studio[1]).recent())
    shown = client.predict(prompt="a star", what="Words", words=["the model's own"], api_name="/compare")[0]
    words = tiny.write("a star", seed=0).texts[0]
    assert shown.count("<blockquote>") == 1 and (escape(words) in shown or not words)
    assert len(History(studio[1]).recent()) == made, "only pictures are kept"


def test_errors_say_what_to_do(client):
    with pytest.raises(AppError, match="prompt is empty"):
        client.predict(prompt=" ", api_name="/create")
    with pytest.raises(AppError, match="Choose a picture first"):
        client.predict(image=None, style=None, prompt="a", api_name="/edit")


def test_leaving_frees_the_model(studio, client, monkeypatch):
    place, _ = studio
    model, reports = place.service.session.pipeline.model, []
    forward = model.forward
    monkeypatch.setattr(model, "forward", lambda *given, **named: time.sleep(0.5) or forward(*given, **named))
    monkeypatch.setattr(place.engine, "observers", [reports.append])
    job = client.submit(prompt="a star", api_name="/create")
    place.until(lambda: place.engine.running)
    job.cancel()
    place.until(lambda: reports)
    assert [report.stopped for report in reports] == [True]
