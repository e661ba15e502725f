"""Presets, single policies, and what is laid over what."""

import pytest
import torch

from dimoo.cache import MaxLogitCache, NoCache, SourceReuse, published
from dimoo.canvas import Canvas, Row
from dimoo.guidance import GuidanceInterval, TextGuidance
from dimoo.model import AnswerDenoiser
from dimoo.presets import POLICIES, PRESETS, read_preset
from dimoo.sampling import Candidates, EarlyFinish, NoMasks, Scheduler, denoise
from dimoo.sampling.rules import Quota
from dimoo.settings import Defaults, Settings


def slots(kind="draw", **given):
    made = Settings(**given).filled(Defaults(), kind)
    return made.cache_policy(), made.guider(), made.scheduler(), made.stop(kind)


def test_the_presets_there_have_to_be():
    assert list(PRESETS) == ["exact", "published", "balanced", "fast"]
    assert slots()[0] == slots(preset="exact")[0] == NoCache()
    assert slots(preset="published")[0] == MaxLogitCache(0.9, 0.3, 5, published)


@pytest.mark.parametrize("name", [*PRESETS, *POLICIES, "fast+interval+early-finish"])
@pytest.mark.parametrize("kind", ["draw", "edit", "text"])
def test_every_preset_makes_slots_for_every_task(name, kind, vocab, small_llada):
    cache, *_ = slots(kind, preset=name)
    text = torch.tensor([6, *[vocab.mask] * 9, 7])
    answer = torch.cat([torch.tensor([6]), vocab.empty_image(3, 3), torch.tensor([7])])
    conditions = {name: torch.arange(8, 10 + k) for k, name in enumerate(("cond", "no_text", "no_image"))}
    picture = Row(answer, conditions | {"uncond": torch.tensor([8])}, vocab.codes, (3, 3))
    row = Row(text, conditions, vocab.everything) if kind == "text" else picture
    made = Settings(preset=name, num_inference_steps=6, block_length=5).filled(Defaults(), kind)
    canvas = Canvas([row, row], vocab, [(0, 0), (0, 1)])
    given = {"scheduler": made.scheduler(), "guider": made.guider(), "blocks": made.blocks(kind), "cache": cache}
    denoise(canvas, small_llada, **given, stop=made.stop(kind))
    assert kind == "text" or not canvas.masked.any()


def test_one_preset_over_another():
    cache, guider, scheduler, stop = slots(preset="fast+interval+early-finish")
    assert isinstance(cache, MaxLogitCache) and cache.reuse == SourceReuse(32)
    assert guider == GuidanceInterval(TextGuidance(4.0), 0.0, 0.75)
    assert isinstance(scheduler.rule, EarlyFinish) and stop == NoMasks()
    assert read_preset("balanced+fast").cache == PRESETS["fast"].cache
    assert read_preset("source-reuse").policy() == POLICIES["source-reuse"].reuse


def test_what_is_given_besides_wins():
    assert slots(preset="fast", cache="none")[0] == NoCache()
    assert slots(preset="published", cache_ratio=0.8, cache_refresh=7)[0] == MaxLogitCache(0.8, 0.3, 7, published)
    assert slots(preset="fast", cache_warmup=0.5)[0].warmup == 0.5
    assert slots(preset="fast", cache_drift=2.0)[0].drift == 2.0
    assert slots(preset="interval", guidance_interval=(0.1, 0.2))[1].stop == 0.2
    assert slots(preset="early-finish", early_finish=0.5)[2].rule.bound == 0.5


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"preset": "fats"}, "preset has no 'fats', did you mean 'fast'.*balanced.*published"),
        ({"preset": "fast+"}, "preset has no ''"),
        ({"cache_ratio": 0.5}, "cache_ratio is for the max-logit cache, and the cache is none"),
        ({"cache": "prefix", "cache_warmup": 0.5}, "cache_warmup is for .* and the cache is PrefixCache"),
        ({"preset": "fast", "cache_ratio": 1.0}, r"cache_ratio must lie in \(0, 1\), got 1.0"),
        ({"preset": "fast", "cache_warmup": 1.5}, r"cache_warmup must lie in \[0, 1\], got 1.5"),
        ({"preset": "fast", "cache_refresh": 0}, "cache_refresh must be at least 1, got 0"),
        ({"early_finish": 0.0}, r"early_finish must lie in \(0, 1\], got 0"),
    ],
)
def test_values_that_cannot_be(given, words):
    with pytest.raises(ValueError, match=words):
        slots(**given)


def sure_canvas(vocab, count=2):
    row = Row(torch.tensor([6, *[vocab.mask] * 8, 7]), {"cond": torch.tensor([8])}, vocab.everything)
    return Canvas([row] * count, vocab, [(0, k) for k in range(count)])


@pytest.mark.parametrize(("bound", "steps"), [(0.9, 8), (0.6, 1)])
def test_the_rest_is_committed_once_all_of_it_is_sure(vocab, bound, steps):
    """The surest go first, so with answers that do not depend on each other it is all at once or never."""
    certainty = torch.tensor([0.99] * 9 + [0.7, 0.9])  # the last mask stands at position 9
    model = AnswerDenoiser(torch.arange(8, 19), vocab.size, certainty)
    scheduler = Scheduler(quota=lambda masks, count: [1] * masks, temperature=0, rule=EarlyFinish(Quota(), bound))
    canvas, taken = sure_canvas(vocab), []
    made = {"scheduler": scheduler, "stop": NoMasks()}
    denoise(canvas, model, **made, on_step=lambda step: taken.append(int(step.update.write.sum())))
    assert not canvas.masked.any() and sum(taken) == 16 and len(taken) == steps


def test_each_row_finishes_for_itself():
    sure = torch.tensor([[0.95, 0.91, 0.92], [0.95, 0.5, 0.92], [0.95, 0.5, 0.92]])
    open = torch.tensor([[True, True, True], [True, True, True], [True, False, True]])
    ids = torch.arange(3).expand(3, -1)
    found = Candidates(ids, open, ids, None, sure, sure, torch.ones(3, dtype=torch.long), 0, None)
    assert EarlyFinish(Quota(), 0.9)(found).tolist() == [[True] * 3, [True, False, False], [True, False, True]]
