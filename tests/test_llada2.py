"""Side by side with diffusers: the block refinement scheduler, and a call like its LLaDA2 pipeline's."""

import pytest
import torch
from diffusers import BlockRefinementScheduler

from dimoo.blocks import WholeCanvas
from dimoo.canvas import Canvas, Row
from dimoo.llada2 import LLaDA2Adapter
from dimoo.sampling import Scheduler, TokenEditing
from dimoo.sampling.quotas import even
from dimoo.sampling.rules import ThresholdOrQuota


@pytest.mark.parametrize("threshold", [0.3, 0.6, 0.95, 1.1])
@pytest.mark.parametrize("editing", [None, 0.4])
@pytest.mark.parametrize("steps", [3, 8])
def test_the_same_logits_give_the_same_commits_as_diffusers(vocab, threshold, editing, steps):
    length, generator = 8, torch.Generator().manual_seed(int(threshold * 10) + steps)
    theirs = BlockRefinementScheduler(length, steps, threshold)
    theirs.set_timesteps(steps)
    row = Row(torch.full((length,), vocab.mask), {"cond": torch.tensor([8])}, vocab.everything)
    canvas = Canvas([row, row], vocab, [(0, 0), (0, 1)])
    edit = None if editing is None else TokenEditing(editing, post_steps=0)
    ours = Scheduler(quota=even, temperature=0, rule=ThresholdOrQuota(threshold), edit=edit)
    (window,) = WholeCanvas(steps).windows(canvas)
    timetable, sample = ours.timetable(canvas, window), canvas.ids.clone()
    for step in range(steps):
        logits = torch.randn(2, length, vocab.size, generator=generator) * 3
        logits[..., vocab.mask] = -1e9  # theirs would commit it
        out = theirs.step(logits, step, sample, mask_token_id=vocab.mask, editing_threshold=editing)
        rows, valid = canvas.open_rows(window, length)
        ordered = logits.gather(1, rows[..., None].expand(-1, -1, vocab.size))
        canvas.apply(ours.step(ordered, canvas, rows, valid, timetable, step, step))
        open = (sample == vocab.mask).any(1)
        sample = torch.where(open[:, None], out.prev_sample, sample)  # we leave a full row alone without post steps
        assert torch.equal(canvas.ids[open], sample[open]), step
    assert not canvas.masked.any()


def test_a_call_in_their_style(tiny):
    call = LLaDA2Adapter(tiny)
    made = call(["what is it?", "a star"], gen_length=10, block_length=5, num_inference_steps=5, threshold=0.3)
    assert made.sequences.shape == (2, 10) and len(made.texts) == 2
    messages = [
        {"role": "user", "content": "hello"}, {"role": "assistant", "content": "hi"},
        {"role": "user", "content": "what is it?"},
    ]  # fmt: skip
    chatted = call(messages=messages, gen_length=10, output_type="seq", cache="dual")
    assert chatted.texts is None and chatted.sequences.shape == (1, 10)
    alone = call("what is it?", gen_length=10, block_length=5, num_inference_steps=5, threshold=0.3)
    assert alone.texts == made.texts[:1]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "give either a prompt or messages"),
        ({"prompt": "a", "gen_length": 0}, "must be at least 1, got 0"),
        ({"prompt": "a", "sampling_method": "beam"}, "sampling_method is one of auto, greedy, multinomial"),
        ({"messages": [{"role": "assistant", "content": "a"}]}, "messages alternate user, assistant"),
        ({"prompt": "a", "threshold": -0.1}, "threshold must be more than 0"),
    ],
)
def test_what_cannot_be_called(tiny, options, words):
    with pytest.raises(ValueError, match=words):
        LLaDA2Adapter(tiny)(**options)
