"""Rewards: one finite number a sample, whatever the order, and the right one."""

import numpy as np
import pytest
import torch
from PIL import Image

from dimoo.settings import Settings
from dimoo.tasks import Ask, TextToImage
from dimoo_training import world as w
from dimoo_training.puzzles import PUZZLES
from dimoo_training.rl.judge import Judge, right_places
from dimoo_training.rl.questions import questions
from dimoo_training.rl.rewards import REWARDS, Samples, total
from dimoo_training.rl.subjects import Curriculum, Drawings, Request

WORLD = w.WORLDS["full"]


class Painted:
    """A task that is finished already: the picture of a scene, or a text."""

    prompt = "a circle"

    def __init__(self, result):
        self.result = result

    def finish(self, codec, answer):
        return self.result


class Knowing:
    """A judge that knows the scenes: it gives the right letter `sure`, whatever image ids it is shown."""

    def __init__(self, sure):
        self.sure = sure

    def probabilities(self, asked, images):
        places = right_places(asked)
        others = (1 - self.sure) / 3
        return torch.full((len(asked), 4), others).scatter(1, places[:, None], self.sure)


def drawings(rng, sure=0.7, spoil=()):
    requests = []
    for k in range(4):
        caption = w.sample_caption(WORLD, "attributes", rng)
        scene = w.scene_for(caption.claim, WORLD, rng)
        scene = w.Scene(scene.objects[1:], scene.background) if k in spoil else scene
        task = Painted(Image.fromarray(w.render(scene)))
        requests.append(Request(task, caption.family, caption, tuple(questions(caption.claim, WORLD, 4, rng))))
    return Samples(None, requests, [torch.arange(5)] * 4, Knowing(sure))


def puzzles(kind, rng, say=lambda problem: problem.answer):
    problems = [PUZZLES[kind].sample(rng, held_out=False) for _ in range(3)]
    requests = [Request(Painted(say(p)), kind, p) for p in problems]
    return Samples(None, requests, [torch.arange(5)] * 3, None)


def samples_for(name, rng):
    return puzzles("countdown" if name == "countdown" else "sudoku", rng) if name in TEXTS else drawings(rng)


TEXTS = ("answer_format", "sudoku", "solved", "countdown")
TRIED = [name for name in REWARDS if name != "clip"]                    # clip needs weights that do not ship


@pytest.mark.parametrize("name", TRIED)
def test_every_reward_gives_one_number_a_sample_that_is_its_own(name, rng):
    samples = samples_for(name, rng)
    rewards = REWARDS[name](samples)
    assert len(rewards) == len(samples) and np.isfinite(rewards).all() and max(rewards) <= 1 and min(rewards) >= 0
    backwards = Samples(None, samples.requests[::-1], samples.answers, samples.judge)
    assert REWARDS[name](backwards) == pytest.approx(rewards[::-1])


def test_self_rewards_are_the_share_of_right_letters_and_their_probability(rng):
    assert REWARDS["self_consistency"](drawings(rng, sure=0.7)) == [1.0] * 4
    assert REWARDS["self_consistency"](drawings(rng, sure=0.1)) == [0.0] * 4
    assert REWARDS["self_confidence"](drawings(rng, sure=0.7)) == pytest.approx([0.7] * 4)


def test_the_oracle_sees_what_is_missing(rng):
    assert REWARDS["oracle"](drawings(rng, spoil=(1, 2))) == [1.0, 0.0, 0.0, 1.0]


@pytest.mark.parametrize("kind", ["sudoku", "countdown"])
def test_verifiers(kind, rng):
    right = puzzles(kind, rng)
    assert REWARDS["solved"](right) == REWARDS[kind](right) == REWARDS["answer_format"](right) == [1.0] * 3
    for said in ("", "yes", "__import__('os')", "1+1=2 2+1=3 x"):
        wrong = puzzles(kind, rng, lambda problem, said=said: said)
        assert sum(REWARDS["solved"](wrong) + REWARDS["answer_format"](wrong) + list(REWARDS[kind](wrong))) == 0


def test_the_form_of_an_answer_counts_a_little(rng):
    assert REWARDS["countdown"](puzzles("countdown", rng, lambda p: "1+1=2 2+1=3")) == [0.1] * 3
    half = puzzles("sudoku", rng, lambda p: "1111 1111 1111 1111")
    assert REWARDS["answer_format"](half) == [1.0] * 3 and 0 < sum(REWARDS["sudoku"](half)) < 3
    assert REWARDS["answer_format"](puzzles("sudoku", rng, lambda p: "1030 1111 1111 1111")) == [0.0] * 3


def test_clip_says_what_it_needs(rng):
    with pytest.raises(ValueError, match=r"open_clip|local weights"):
        REWARDS["clip"](drawings(rng))


def test_rewards_are_summed_with_their_weights_and_a_users_own_is_a_function_in_a_file(rng, tmp_path):
    mine = tmp_path / "mine.py"
    mine.write_text("def dark(samples):\n    return [0.5 for _ in samples.pictures]\n")
    found, parts = total(drawings(rng), {"self_consistency": 1.0, f"{mine}:dark": 2.0})
    assert found.tolist() == [2.0] * 4 and set(parts) == {"self_consistency", f"{mine}:dark"}


@pytest.mark.parametrize(("name", "says"), [("beauty", "self_consistency"), ("nan", "finite"), ("short", "4 finite")])
def test_a_wrong_reward_is_told(name, says, rng, tmp_path):
    mine = tmp_path / "mine.py"
    mine.write_text("def nan(samples):\n    return [float('nan')] * 4\n\ndef short(samples):\n    return [1.0]\n")
    with pytest.raises(ValueError, match=says):
        total(drawings(rng), {name if name == "beauty" else f"{mine}:{name}": 1.0})


# The judge, and what is asked


@pytest.mark.parametrize("ask", ["letters", "words"])
def test_the_judge_gives_probabilities_of_the_choices_that_are_offered(tiny, rng, ask):
    judge = Judge(tiny.model, tiny.codec, ask, batch=3)
    asked = questions(w.sample_caption(WORLD, "position", rng).claim, WORLD, 6, rng)
    images = [tiny.codec.vocab.lay_out(torch.full((4, 4), k)) for k in range(len(asked))]
    p = judge.probabilities(asked, images)
    assert p.shape == (len(asked), 4) and p.sum(1).tolist() == pytest.approx([1.0] * len(asked))
    assert all(not row[len(q.choices) :].any() for row, q in zip(p, asked, strict=True))
    alone = Judge(tiny.model, tiny.codec, ask).probabilities(asked[1:2], images[1:2])
    torch.testing.assert_close(alone[0], p[1], atol=1e-5, rtol=1e-4)
    other = judge.probabilities(asked, [image.flip(0).clone() for image in images[::-1]])
    assert not torch.allclose(other, p)                                  # it looks at the picture


def test_choices_that_begin_alike_are_asked_by_letter(tiny):
    judge = Judge(tiny.model, tiny.codec, "words")
    plain = w.Question("what color is the star?", "red", "color", ("blue", "red"))
    places = w.Question("where is the star?", "top left", "where", ("top right", "top left"))
    assert judge.form(plain) == (plain.text, [tiny.codec.text.encode(word)[0] for word in plain.choices])
    assert judge.form(places)[0] == places.as_choice()[0]


def test_requests_come_from_the_training_split_with_questions_that_need_the_picture(tiny, rng):
    judge, subject = Judge(tiny.model, tiny.codec), Drawings()
    requests = subject.draw(6, dict.fromkeys(subject.kinds, 1.0), judge, tiny.defaults, rng)
    for request in requests:
        assert isinstance(request.task, TextToImage) and not w.caption_held_out(request.truth)
        assert 1 <= len(request.questions) <= subject.count
        guessed = judge.unseen(request.questions, 4, 4).gather(1, right_places(request.questions)[:, None])
        assert float(guessed.max()) < subject.limit or len(guessed) > 1


def test_the_curriculum_prefers_what_is_half_known():
    curriculum = Curriculum(("easy", "half", "hard"), memory=0.0)
    curriculum.hear(["easy", "half", "half", "hard"], [1.0, 1.0, 0.0, 0.0])
    mix = curriculum.mix()
    assert mix["half"] == pytest.approx(0.3) and mix["easy"] == mix["hard"] == pytest.approx(0.05)


def test_settings_of_recipes_are_settings(tiny):
    from dimoo_training.rl.recipes import RECIPES
    from dimoo_training.rl.rollout import check

    for recipes in RECIPES.values():
        for name, make in recipes.items():
            recipe = make()
            kind = "draw" if recipe.subject == "drawings" else "text"
            check(Settings(**recipe.settings).filled(tiny.defaults, kind))
            assert set(recipe.rewards) <= set(REWARDS), name
    assert Ask("?", length=4).kind == "text"
