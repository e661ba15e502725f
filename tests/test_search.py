"""Search at test time: stretches of one schedule are the schedule, and the model's own checks choose."""

from pathlib import Path

import pytest
import torch
from PIL import Image

from dimoo.images import read_parameters
from dimoo.sampling.quotas import cosine
from dimoo.search import SEARCHES, BestOf, Hierarchical, Stretch, Tries
from dimoo.settings import Settings
from dimoo.tasks import TextToImage
from dimoo.verify import Check, facts, scores, whole

STEPS = 8


def tries(pipeline, prompts=("a red circle", "a star"), checks=facts, **settings):
    chosen = Settings(num_inference_steps=STEPS, **settings).filled(pipeline.defaults, "draw")
    parts = {"scheduler": chosen.scheduler(), "guider": chosen.guider(), "blocks": chosen.blocks("draw"),
             "cache": chosen.cache_policy(), "stop": chosen.stop("draw")}  # fmt: skip
    rows = [TextToImage(prompt, 32, 32).prepare(pipeline.codec) for prompt in prompts]
    seeds = [(3, k) for k in range(len(rows))]
    return Tries(pipeline.model, pipeline.codec, rows, prompts, seeds, parts, STEPS, checks)


FADING = {"anneal": "linear", "guidance_interval": (0.2, 0.7)}


@pytest.mark.parametrize("settings", [{}, FADING], ids=["plain", "fading"])
def test_stretches_of_a_schedule_are_the_schedule(tiny, settings):
    call = {"seed": 3, "num_inference_steps": STEPS, "output_type": "tokens"}
    wanted = tiny.generate(["a red circle", "a star"], **call, **settings)
    work = tries(tiny, **settings)
    made = work.begin(1)
    for start, stop in ((0, 2), (2, 3), (3, 7), (7, STEPS)):
        made = work.advance(made, start, stop)
    for one, codes in zip(made, wanted.images, strict=True):
        assert torch.equal(tiny.codec.vocab.read_codes(one.ids[1:-1], 4, 4), codes)


def test_a_stretch_commits_what_is_left():
    plan = cosine(16, STEPS)
    stretch = Stretch({sum(plan[3:]): [0] * 3 + plan[3:]}, 3)
    assert sum(stretch(sum(plan[3:]), STEPS)) == sum(plan[3:]) and stretch(0, STEPS) == [0] * STEPS
    assert stretch.last(3) is None and stretch.last(5) == 4


@pytest.mark.parametrize("name", SEARCHES)
def test_every_search_gives_one_whole_picture_a_sample_and_is_repeatable(tiny, name):
    call = {"seed": 3, "num_inference_steps": STEPS, "best_of": 4, "search": name, "output_type": "tokens"}
    one, two = (tiny.generate(["a red circle", "a star"], **call) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(one.images, two.images, strict=True))
    assert all(int(codes.min()) >= 0 and int(codes.max()) < 64 for codes in one.images)
    alone = tiny.generate("a star", index=1, **call).images[0]
    assert torch.equal(alone, one.images[1])                            # whatever else is searched for
    assert one.forwards > STEPS


def test_best_of_chooses_what_the_checks_like_best(tiny):
    work = tries(tiny)
    made = work.advance(work.begin(4), 0, STEPS)
    found = scores(tiny.model, tiny.codec, [facts(work.prompts[t.sample]) for t in made], [t.ids[1:-1] for t in made])
    chosen = BestOf()(tries(tiny), 4)
    for sample in (0, 1):
        best = int(found[4 * sample : 4 * sample + 4].argmax())
        assert torch.equal(chosen[sample].ids, made[4 * sample + best].ids)


def test_the_first_try_is_the_plain_drawing(tiny):
    plain = tiny.generate("a star", seed=3, num_inference_steps=STEPS, output_type="tokens").images[0]
    first = tiny.generate("a star", seed=3, num_inference_steps=STEPS, output_type="tokens", best_of=1).images[0]
    assert torch.equal(plain, first)


def test_hierarchical_search_is_cheaper_than_as_many_tries(tiny):
    found = {}
    for name in SEARCHES:
        work = tries(tiny, checks=lambda prompt: [Check("is there a star?", ("yes", "no"), "yes")])
        SEARCHES[name]()(work, 8)
        found[name] = work.forwards / len(work.rows)
    assert found["best-of"] == 8 * STEPS * 1 * branches(tiny) + 8
    assert found["hierarchical"] < 0.6 * found["best-of"]


def branches(pipeline):
    return 2 if pipeline.defaults.guidance_scale else 1


def test_tries_have_streams_of_their_own(tiny):
    work = tries(tiny)
    streams = [t.stream for t in work.branch(work.begin(3), 2)]
    assert len(set(streams)) == 6 + 6 and (3, 0) in streams


def test_an_interrupted_search_shows_what_was_there(tiny):
    def stop(pipeline, step, number, tensors):
        pipeline.interrupt = step == 2

    made = tiny.generate("a star", seed=0, num_inference_steps=STEPS, best_of=4, callback_on_step_end=stop)
    assert made.interrupted and made.images[0].size == (32, 32)


@pytest.mark.parametrize(("options", "says"), [
    ({"best_of": 0}, "best_of"), ({"search": "hierarchical"}, "best_of must say"),
    ({"best_of": 2, "search": "widest"}, "best-of, hierarchical"), ({"best_of": 2, "verifier": "x"}, "facts, whole"),
])  # fmt: skip
def test_a_search_that_cannot_be_is_told(tiny, options, says):
    with pytest.raises(ValueError, match=says):
        tiny.generate("a star", **options)


def test_only_drawings_are_searched(tiny, photo):
    with pytest.raises(ValueError, match="best_of is for drawings"):
        tiny.edit("make it red", photo, best_of=2)
    with pytest.raises(ValueError, match="wait=0"):
        Hierarchical(wait=0)


def test_a_searched_picture_keeps_how_it_was_found_and_can_be_repeated(cli):
    cli("generate", "a star", "--best-of", 2, "--search", "hierarchical", "--steps", 4, "--seed", 1, "--out", "a.png")
    assert read_parameters(Path("a.png"))["search"] == "hierarchical" and read_parameters(Path("a.png"))["best_of"] == 2
    cli("generate", "--from", "a.png", "--out", "b.png")
    assert Image.open("a.png").tobytes() == Image.open("b.png").tobytes()
    assert "--best-of" in cli("generate", "a star", "--search", "hierarchical", code=2).output


# What is checked


@pytest.mark.parametrize(("prompt", "asked"), [
    ("a red circle", {"is there a red circle?": "yes", "how many objects are there?": "one"}),
    ("Draw a red circle and a blue square.", {
        "is there a red circle?": "yes", "is there a blue square?": "yes", "how many objects are there?": "two"}),
    ("three stars on a black background", {"how many stars are there?": "three"}),
    ("there is a star to the left of a red heart", {
        "is there a star?": "yes", "is there a red heart?": "yes", "is the star to the left of the red heart?": "yes",
        "how many objects are there?": "two"}),
    ("a star, a heart and a circle", {
        "is there a star?": "yes", "is there a heart?": "yes", "is there a circle?": "yes",
        "how many objects are there?": "three"}),
])  # fmt: skip
def test_a_prompt_is_taken_apart(prompt, asked):
    assert {check.question: check.right for check in facts(prompt)} == asked


def test_a_prompt_can_be_asked_about_as_a_whole():
    (check,) = whole("a cat.")
    assert check.question == "does the image show a cat?" and check.options == ("yes", "no")


def test_answers_that_cannot_be_told_apart_are_refused(tiny):
    image = tiny.codec.vocab.empty_image(4, 4)
    with pytest.raises(ValueError, match="same token"):
        scores(tiny.model, tiny.codec, [[Check("?", ("yes", "yes"), "yes")]], [image])
