"""The HTTP API, through the official client: what it makes is what the pipeline makes, and errors are OpenAI's."""

from __future__ import annotations

import base64
import json
import threading
import time

import pytest
from PIL import Image

pytest.importorskip("fastapi", reason="needs the extra [app]")
openai = pytest.importorskip("openai", reason="needs the extra [dev]")

from serving import opened, png  # noqa: E402

from dimoo.images import read_parameters  # noqa: E402
from dimoo.tasks import Ask, Edit, Inpaint, TextToImage  # noqa: E402


def test_models(serve):
    client = serve().client
    assert [model.id for model in client.models.list()] == ["tiny"]
    assert client.models.retrieve("tiny").owned_by == "dimoo"
    with pytest.raises(openai.NotFoundError, match="allowed: tiny"):
        client.models.retrieve("gpt")


def test_a_drawing_is_the_pipelines(serve, tiny):
    extra = {"seed": 3, "steps": 3, "guidance_scale": 1.0}
    made = serve(tiny).client.images.generate(prompt="a red circle", n=2, size="48x32", extra_body=extra)
    wanted = tiny.run([TextToImage("a red circle", 32, 48)] * 2, seed=3, num_inference_steps=3, guidance_scale=1.0)
    assert [opened(one).tobytes() for one in made.data] == [one.tobytes() for one in wanted.images]
    stated = read_parameters(base64.b64decode(made.data[1].b64_json))
    assert (stated["prompt"], stated["seed"], stated["index"], stated["width"]) == ("a red circle", 3, 1, 48)


def test_the_parameters_repeat_the_picture(serve, tiny, tiny_folder, tmp_path, cli):
    made = serve(tiny, model=str(tiny_folder)).client.images.generate(prompt="a star", response_format="url")
    data = base64.b64decode(made.data[0].url.removeprefix("data:image/png;base64,"))
    (tmp_path / "made.png").write_bytes(data)
    cli("generate", "--from", "made.png", "--out", "again.png")
    assert Image.open(tmp_path / "again.png").tobytes() == Image.open(tmp_path / "made.png").tobytes()


def test_an_edit_is_the_pipelines(serve, tiny, photo):
    extra = {"seed": 4, "edit": "edit_remove", "image_guidance_scale": 1.5}
    made = serve(tiny).client.images.edit(image=("a.png", png(photo)), prompt="remove it", extra_body=extra)
    wanted = tiny.run([Edit("remove it", [photo], "edit_remove")], seed=4, image_guidance_scale=1.5).images[0]
    assert opened(made.data[0]).tobytes() == wanted.tobytes()
    two = serve(tiny).client.images.edit(image=[("a.png", png(photo)), ("b.png", png(photo.rotate(90)))],
                                         prompt="x", extra_body={"edit": "image_ref_transfer"})  # fmt: skip
    assert opened(two.data[0]).size == photo.size


@pytest.mark.parametrize("form", ["transparent", "white"])
def test_a_mask_is_filled_and_the_rest_stays(serve, tiny, photo, form):
    white = Image.new("L", photo.size, 0)
    white.paste(255, (16, 16, 40, 48))
    mask = white
    if form == "transparent":           # OpenAI's way: the hole is where nothing is
        mask = photo.copy()
        mask.putalpha(white.point(lambda value: 255 - value))
    made = serve(tiny).client.images.edit(image=("a.png", png(photo)), mask=("m.png", png(mask)), prompt="a star",
                                          extra_body={"seed": 5})  # fmt: skip
    wanted = tiny.run([Inpaint("a star", photo, white)], seed=5).images[0]
    assert opened(made.data[0]).tobytes() == wanted.tobytes()


def test_partial_pictures_come_before_the_finished_one(serve, slow):
    client, extra = serve(slow).client, {"seed": 6, "steps": 12}
    events = list(client.images.generate(prompt="a star", stream=True, partial_images=2, extra_body=extra))
    kinds = [event.type for event in events]
    assert kinds[-1] == "image_generation.completed"
    assert kinds[:-1] == ["image_generation.partial_image"] * 2
    wanted = slow.generate("a star", seed=6, num_inference_steps=12).images[0]
    assert opened(events[-1]).tobytes() == wanted.tobytes()


def message(words, *pictures):
    urls = [f"data:image/png;base64,{base64.b64encode(png(one)).decode()}" for one in pictures]
    parts = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    return {"role": "user", "content": [{"type": "text", "text": words}, *parts]}


def test_chat_with_pictures_and_turns(serve, tiny, photo):
    turns = [message("what?", photo), {"role": "assistant", "content": "a"}, message("and there?", photo.rotate(90))]
    made = serve(tiny).client.chat.completions.create(model="tiny", messages=turns, max_tokens=8)
    wanted = tiny.run([Ask("and there?", [photo, photo.rotate(90)], [("what?", "a")], 6)]).texts[0]  # whole blocks of 6
    assert made.choices[0].message.content == wanted
    assert made.usage.total_tokens == made.usage.prompt_tokens + made.usage.completion_tokens > 0


def test_streamed_chat_adds_up(serve, tiny):
    client, asked = serve(tiny).client, [{"role": "user", "content": "a red circle"}]
    given = {"model": "tiny", "messages": asked, "temperature": 1.0, "seed": 2, "max_tokens": 12}
    whole = client.chat.completions.create(**given, n=2)
    stream = client.chat.completions.create(**given, n=2, stream=True, stream_options={"include_usage": True})
    texts, last = ["", ""], None
    for chunk in stream:
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
        last = chunk
    assert texts == [choice.message.content for choice in whole.choices]
    assert last.usage.completion_tokens == whole.usage.completion_tokens


def test_an_answer_says_why_it_ends(server, monkeypatch):
    asked = {"model": "tiny", "messages": [{"role": "user", "content": "a red circle"}], "max_tokens": 2}
    for words, wanted in (("a red circle and a star", "length"), ("", "stop")):
        monkeypatch.setattr(Ask, "finish", lambda self, codec, answer, words=words: words)
        whole = server.client.chat.completions.create(**asked)
        *_, last = server.client.chat.completions.create(**asked, stream=True)
        assert [one.choices[0].finish_reason for one in (whole, last)] == [wanted, wanted]


REFUSED = [
    ({"prompt": ""}, "prompt is empty"),
    ({"prompt": "a", "size": "33x32"}, "multiple of 8, got 33"),
    ({"prompt": "a", "size": "big"}, "WIDTHxHEIGHT"),
    ({"prompt": "a", "size": "4096x4096"}, "allowed: 16384"),
    ({"prompt": "a", "n": 99}, "n must be at most 10, got 99"),
    ({"prompt": "a", "extra_body": {"steps": 0}}, "steps"),
    ({"prompt": "a", "extra_body": {"step": 3}}, "step: Extra inputs"),
    ({"prompt": "a", "extra_body": {"preset": "warp"}}, "preset.*'warp'"),
    ({"prompt": "a" * 40_000}, "allowed: 32000"),
]


@pytest.mark.parametrize("given, words", REFUSED)
def test_refusals_say_what_is_wrong(server, given, words):
    with pytest.raises(openai.BadRequestError, match=words) as caught:
        server.client.images.generate(**given)
    assert caught.value.type == "invalid_request_error"


def test_chat_refusals(server):
    def ask(*messages, **more):
        return server.client.chat.completions.create(model="tiny", messages=list(messages), **more)

    user, assistant = {"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}
    for messages, words in (((user, assistant), "take turns"), ((assistant, user), "take turns")):
        with pytest.raises(openai.BadRequestError, match=words):
            ask(*messages)
    with pytest.raises(openai.BadRequestError, match="not supported by this kind of model: tools"):
        ask(user, tools=[{"type": "function", "function": {"name": "f"}}])
    far = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://127.0.0.1/a.png"}}]}
    with pytest.raises(openai.BadRequestError, match="addresses are not fetched"):
        ask(far)
    with pytest.raises(openai.NotFoundError, match="allowed: tiny"):
        server.client.chat.completions.create(model="other", messages=[user])
    assert ask(user, assistant, user, max_tokens=2, user="me", tools=[]).choices


def test_keys(serve, tiny):
    place = serve(tiny, keys=("right", "other"))
    assert place.client_with("other").models.list()
    with pytest.raises(openai.AuthenticationError):
        place.client_with("wrong").models.list()
    assert place.get("/metrics")[0] == 401
    assert place.get("/healthz")[0] == 200


def test_health_and_metrics_count(serve, tiny):
    place = serve(tiny)
    place.client.images.generate(prompt="a", n=3)
    assert json.loads(place.get("/healthz")[1])["status"] == "ok"
    text = place.get("/metrics")[1]
    assert 'dimoo_samples_total{kind="draw"} 3.0' in text
    assert 'dimoo_requests_total{method="POST",route="/v1/images/generations",status="200"} 1.0' in text


def test_a_large_body_is_refused(serve, tiny, photo):
    place = serve(tiny, body=1000)
    with pytest.raises(openai.APIStatusError, match="allowed: 1000 bytes") as caught:
        place.client.images.edit(image=("a.png", png(photo)), prompt="a")
    assert caught.value.status_code == 413


def test_unknown_paths_answer_in_json(server):
    status, body = server.get("/v1/nothing")
    assert status == 404 and json.loads(body)["error"]["type"] == "invalid_request_error"


def test_a_full_queue_says_when_to_come_back(serve, tiny):
    place = serve(tiny, queue=1)
    release, plain = threading.Event(), tiny.run
    tiny.run = lambda *tasks, **options: release.wait(120) and plain(*tasks, **options)
    threads = [threading.Thread(target=place.client.images.generate, kwargs={"prompt": "a"}) for _ in range(2)]
    for thread, there in zip(threads, ("running", "waiting"), strict=True):
        thread.start()
        place.until(lambda there=there: getattr(place.engine, there) == 1)
    with pytest.raises(openai.RateLimitError) as caught:
        place.client.images.generate(prompt="b")
    assert caught.value.response.headers["retry-after"] == "1"
    release.set()
    for thread in threads:
        thread.join(20)


@pytest.fixture
def slow(tiny, monkeypatch):
    """A model that takes its time."""
    forward = tiny.model.forward

    def delayed(*given, **named):
        time.sleep(0.05)
        return forward(*given, **named)

    monkeypatch.setattr(tiny.model, "forward", delayed)
    return tiny


def test_a_client_that_leaves_a_stream_frees_the_model(serve, slow):
    place = serve(slow)
    asked = {"model": "tiny", "messages": [{"role": "user", "content": "a"}]}
    stream = place.client.chat.completions.create(**asked, max_tokens=1000, stream=True, extra_body={"steps": 1000})
    assert next(iter(stream)).choices[0].delta.role == "assistant"
    place.until(lambda: place.engine.running)
    stream.close()
    place.until(lambda: place.engine.running == 0, 30)
    assert 'dimoo_samples_total{kind="text"}' not in place.get("/metrics")[1]


def test_a_client_that_leaves_frees_the_model(serve, slow):
    place, reports = serve(slow), []
    place.engine.observers.append(reports.append)
    with pytest.raises(openai.APITimeoutError):
        place.client.images.generate(prompt="a", extra_body={"steps": 1000}, size="128x128", timeout=1.5)
    place.until(lambda: reports)
    assert [report.stopped for report in reports] == [True]
    assert 'dimoo_samples_total{kind="draw"}' not in place.get("/metrics")[1]
