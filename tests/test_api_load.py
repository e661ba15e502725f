"""Under load: nobody is dropped, nobody gets another's picture, and batches form."""

from __future__ import annotations

import base64
from concurrent.futures import ThreadPoolExecutor

import pytest

pytest.importorskip("fastapi", reason="needs the extra [app]")
openai = pytest.importorskip("openai", reason="needs the extra [dev]")

from serving import opened  # noqa: E402

from dimoo.images import read_parameters  # noqa: E402

REQUESTS, CLIENTS = 200, 16
WORDS = ("a red circle", "a blue square to the left of a green star", "a star")


@pytest.mark.slow
def test_hundreds_of_requests_from_many_clients(serve, tiny):
    place = serve(tiny)
    client = place.client

    def ask(number: int):
        words, size = WORDS[number % 3], ("32x32", "48x16")[number % 2]
        made = client.images.generate(prompt=words, size=size, extra_body={"seed": number, "steps": 3})
        return number, words, size, made.data[0]

    with ThreadPoolExecutor(CLIENTS) as pool:
        answers = list(pool.map(ask, range(REQUESTS)))
    assert len(answers) == REQUESTS
    batches = [line for line in place.get("/metrics")[1].splitlines() if line.startswith("dimoo_batch_size_count")]
    assert float(batches[0].split()[1]) < REQUESTS / 2, "requests that wait together are made together"
    for number, words, size, entry in answers[:: REQUESTS // 20]:
        width, height = map(int, size.split("x"))
        alone = tiny.generate(words, height=height, width=width, seed=number, num_inference_steps=3).images[0]
        assert opened(entry).tobytes() == alone.tobytes()
    for number, words, _, entry in answers:
        stated = read_parameters(base64.b64decode(entry.b64_json))
        assert (stated["seed"], stated["prompt"]) == (number, words)


@pytest.mark.slow
def test_stopping_the_server_finishes_what_was_taken(serve, tiny):
    from dimoo_app.server import Server

    place = serve(tiny)
    with ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(place.client.images.generate, prompt="a", extra_body={"seed": k}) for k in range(8)]
        place.until(lambda: place.engine.running)
        ending = Server(place.server.config.app, place.service, "127.0.0.1", 0)
        ending.handle_exit(15, None)                            # what a signal does
        done = [one.exception() or one.result() for one in asked]
    served = [one for one in done if not isinstance(one, Exception)]
    assert served and all(isinstance(one, openai.InternalServerError) for one in done if one not in served)
    assert place.get("/healthz")[0] == 503
