"""Rollouts: the project's own loop, with states whose likelihood can be read again."""

import numpy as np
import pytest
import torch

from dimoo.canvas import Canvas, Row
from dimoo.sampling import EarlyRejection, Scheduler
from dimoo.sampling.quotas import even
from dimoo.settings import Settings
from dimoo.tasks import Ask, TextToImage
from dimoo_training.rl.likelihood import frozen_log_probabilities, log_probabilities
from dimoo_training.rl.moves import ESTIMATORS, fully_masked, random_mask, shared_noise, trajectory
from dimoo_training.rl.rollout import Sampler, roll_out

PROMPTS = ["a red circle", "two blue stars and a heart"]
SETTINGS = {
    "plain": {"num_inference_steps": 4, "guidance_scale": 0.0, "temperature": 1.0},
    "cool and guided": {"num_inference_steps": 5, "guidance_scale": 1.5, "temperature": 0.7},
}


def drawn(pipeline, name="plain", group=3, **more):
    settings = Settings(**(SETTINGS[name] | more)).filled(pipeline.defaults, "draw")
    tasks = [TextToImage(prompt, 32, 32) for prompt in PROMPTS]
    return roll_out(pipeline.model, pipeline.codec, tasks, group, settings, seed=5, index=2)


def written(pipeline):
    settings = {"num_inference_steps": 4, "temperature": 0.9, "quota": "powers-of-two", "block_length": 16}
    filled = Settings(**settings).filled(pipeline.defaults, "text")
    tasks = [Ask("sudoku 1030 0241", length=16), Ask("what?", length=16)]
    return roll_out(pipeline.model, pipeline.codec, tasks, 2, filled, 1)


@pytest.mark.parametrize("name", SETTINGS)
def test_a_replayed_log_probability_is_that_of_the_rollout(tiny, name):
    rollout = drawn(tiny, name)
    moves = trajectory(rollout, range(len(rollout.states)), None)
    log_p = log_probabilities(tiny.model, moves)
    assert log_p.requires_grad and bool((moves.old <= 0).all()) and float(moves.old.min()) < -0.5
    ratio = (log_p.detach() - moves.old).exp()[moves.valid]
    assert len(ratio) == 6 * 16                                         # every token of every sample, once
    assert float((ratio - 1).abs().max()) < 1e-4                        # asked for: 1e-3


def test_branches_that_were_not_computed_are_not_read_again(tiny):
    for name, branches in (("plain", 1), ("cool and guided", 2)):
        rollout = drawn(tiny, name)
        for make in ESTIMATORS.values():
            assert make(rollout, range(2), np.random.default_rng(0)).ids.shape[1] == branches


def test_text_is_replayed_too(tiny):
    rollout = written(tiny)
    moves = trajectory(rollout, range(len(rollout.states)), None)
    assert int(moves.valid.sum()) > 16
    gap = (frozen_log_probabilities(tiny.model, moves, 3) - moves.old).exp() - 1
    assert float(gap.abs().max()) < 1e-4


def test_samples_are_those_of_the_pipeline(tiny):
    rollout = drawn(tiny, "cool and guided", group=1)
    made = tiny.generate(PROMPTS, seed=5, index=2, output_type="tokens", **SETTINGS["cool and guided"]).images
    for k, codes in enumerate(made):
        assert torch.equal(tiny.codec.vocab.read_codes(rollout.answer(k)[1:-1], 4, 4), codes)


def test_states_hold_what_stood_there_before_they_wrote(tiny):
    rollout = drawn(tiny)
    commits = rollout.commits()
    open_ = rollout.canvas.start
    assert bool((commits[~open_] == -1).all()) and bool((commits[open_] >= 0).all())
    for number, state in enumerate(rollout.states):
        masked = state.ids == tiny.codec.vocab.mask
        assert torch.equal(masked, (commits >= number))
        at = state.valid.nonzero()
        assert torch.equal(rollout.canvas.ids.gather(1, state.rows)[tuple(at.T)], state.chosen[tuple(at.T)])
        assert bool((state.entropy >= 0).all()) and bool((state.entropy <= np.log(64) + 1e-4).all())
    assert not torch.equal(rollout.answer(0), rollout.answer(1))        # a group differs


def test_what_cannot_be_replayed_is_refused(tiny):
    for setting, value in {"cache": "max-logit", "noise": "published-bf16", "top_k": 3}.items():
        with pytest.raises(ValueError, match=rf"{setting}=.*got"):
            drawn(tiny, **{setting: value})
    with pytest.raises(ValueError, match="temperature > 0"):
        drawn(tiny, temperature=0.0)


def test_the_mask_id_is_never_likely():
    log_p = Sampler(1.0, 2).log_softmax(torch.zeros(1, 4))
    assert log_p.exp().tolist() == [pytest.approx([1 / 3, 1 / 3, 0.0, 1 / 3])]


# Other ways to read a likelihood


@pytest.mark.parametrize("name", ESTIMATORS)
def test_every_estimator_reads_tokens_of_the_answers_from_states_where_they_are_masked(tiny, name):
    rollout = drawn(tiny)
    moves = ESTIMATORS[name](rollout, range(3), np.random.default_rng(0))
    at = moves.ids[:, 0].gather(1, moves.where[:, 0])
    assert bool((at[moves.valid] == tiny.codec.vocab.mask).all())
    final = rollout.canvas.ids[moves.sample].gather(1, moves.rows)
    assert torch.equal(final[moves.valid], moves.chosen[moves.valid])
    assert bool(log_probabilities(tiny.model, moves).isfinite().all())
    hidden = (moves.ids[:, 0] == tiny.codec.vocab.mask).sum(1)
    assert bool((hidden >= moves.valid.sum(1)).all())


def test_masks_are_as_many_as_the_method_says(tiny):
    rollout, rng = drawn(tiny), np.random.default_rng(0)
    assert fully_masked(rollout, (), rng).valid.sum(1).tolist() == [16] * 6
    levels = shared_noise(rollout, range(8), rng).valid.sum(1).view(8, 6)
    assert bool((levels == levels[:, :1]).all())                        # the same levels for all samples
    assert [(int(level) - 1) // 2 for level in levels[:, 0].sort().values] == list(range(8))
    ratios = random_mask(rollout, range(4), rng).valid.sum(1).view(4, 6)[:, 0].sort().values
    assert ratios.tolist() == sorted(ratios.tolist()) and len(set(ratios.tolist())) > 2


def test_micro_batches_change_nothing(tiny):
    moves = trajectory(drawn(tiny), (0, 2), None)
    whole = frozen_log_probabilities(tiny.model, moves, 100)
    torch.testing.assert_close(frozen_log_probabilities(tiny.model, moves, 5), whole, atol=1e-5, rtol=1e-5)


# Early rejection of end tokens


@pytest.mark.parametrize(("step", "waits"), [(0, True), (3, False)])
def test_end_tokens_wait(vocab, step, waits):
    """An end is the surest guess at place 0; it is not the first to be written, but at the last step it is."""
    canvas = Canvas([Row(torch.full((4,), vocab.mask), {"cond": torch.tensor([vocab.boa])}, vocab.everything)], vocab,
                    [(0, 0)])  # fmt: skip
    logits = torch.full((1, 4, vocab.size), -9.0)
    logits[0, 0, vocab.eoa], logits[0, 1:, 10] = 9.0, 5.0
    window = canvas.window(torch.ones_like(canvas.start), [4])
    waiting = Scheduler(even, 0.0, reject=EarlyRejection())
    for scheduler, expected in ((Scheduler(even, 0.0), 0), (waiting, 1 if waits else 0)):
        timetable = scheduler.timetable(canvas, window)
        update = scheduler.step(logits, canvas, *canvas.open_rows(window, 4), timetable, step, 0)
        assert update.rows[update.write].tolist() == [expected]
        assert update.ids[0, 0] == vocab.eoa                            # what is drawn stays the same
