"""Narrow passes may be replayed from a recording, and no step makes the host wait for the device.

Neither needs a GPU to be tested: a recording is played by calling the function again, which reads the tensors that
the recording reads; and what would wait are a few operations that a dispatch mode can see.
"""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from dimoo.blocks import WholeCanvas
from dimoo.cache import MaxLogitCache, graphs, session
from dimoo.canvas import Canvas, Row
from dimoo.guidance import GuidanceInterval, TextGuidance
from dimoo.model import LLaDAConfig, LLaDAForMultiModalGeneration
from dimoo.sampling import Scheduler, denoise
from dimoo.settings import Defaults, Settings


@pytest.fixture
def canvas(vocab):
    """Makes two pictures of unlike sizes under conditions of unlike lengths."""
    picture = vocab.lay_out(torch.arange(9).view(3, 3))
    conditions = {"cond": torch.cat([torch.arange(8, 14), picture]), "uncond": torch.tensor([5, 8])}
    conditions |= {"no_text": picture, "no_image": torch.arange(8, 14)}

    def make(*grids) -> Canvas:
        answers = [torch.cat([torch.tensor([6]), vocab.empty_image(*grid), torch.tensor([7])]) for grid in grids]
        rows = [Row(answer, conditions, vocab.codes, grid) for answer, grid in zip(answers, grids, strict=True)]
        return Canvas(rows, vocab, [(0, k) for k in range(len(rows))])

    return make


@pytest.fixture
def recordings(monkeypatch):
    """Recordings work on any device; how often each was made and played."""
    made = []

    def record(function):
        out, number = function(), len(made)
        made.append(0)

        def replay():
            made[number] += 1
            out.copy_(function())

        return out, replay

    monkeypatch.setattr(graphs, "record", record)
    monkeypatch.setattr(session, "available", lambda device: True)
    return made


def drawn(canvas, model, cache, guider):
    denoise(canvas, model, scheduler=Scheduler(), blocks=WholeCanvas(12), cache=cache, guider=guider)
    return canvas.ids


@pytest.mark.parametrize("grids", [[(4, 4)], [(4, 4), (3, 5)]])
@pytest.mark.parametrize("guider", [TextGuidance(), GuidanceInterval(TextGuidance(), 0.0, 0.5)])
def test_replayed_passes_draw_the_same(canvas, small_llada, recordings, grids, guider):
    given = {"ratio": 0.7, "warmup": 0.1, "refresh": 5}
    ids = [drawn(canvas(*grids), small_llada, MaxLogitCache(**given, graphs=on), guider) for on in (False, True)]
    assert torch.equal(*ids)
    assert len(recordings) == 1 and recordings[0] >= 2


def test_where_there_are_no_graphs_nothing_is_recorded(canvas, small_llada, monkeypatch):
    monkeypatch.setattr(graphs, "record", None)
    drawn(canvas((4, 4)), small_llada, MaxLogitCache(0.7, 0, 5, graphs=True), TextGuidance())


def test_a_pass_is_recorded_when_it_comes_again(small_llada, vocab, recordings):
    """So a selection whose count varies does not record at each step."""
    passes, store = graphs.GraphedPasses(small_llada), graphs.KVStore()
    with torch.inference_mode():
        ids = torch.arange(8, 20)[None]
        small_llada(ids, kv=store)
        for number, rows in enumerate(([1, 4], [1, 4, 5], [2, 3], [7, 8])):
            rows = torch.tensor([rows])
            out = passes.narrow(ids + number % 2, rows, store, {"columns": vocab.codes})
            plain = small_llada(ids + number % 2, kv=store, rows=rows, columns=vocab.codes).logits
            torch.testing.assert_close(out, plain)
            assert len(recordings) == (number >= 2)
    assert recordings == [2]


WAITS = {"aten._local_scalar_dense.default", "aten.nonzero.default", "aten.lift_fresh.default", "aten.equal.default"}
"""Reading a number, counting, making a tensor of Python numbers: on a GPU the host waits for each of them."""


class Watching(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.on, self.seen = False, []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if self.on and str(function) in WAITS:
            self.seen.append(str(function))
        return function(*args, **kwargs or {})


def watched(canvas, model, made, kind):
    """What made the host wait between the first step and the last."""
    steps = made.num_inference_steps
    with Watching() as watching:

        def on_step(step):
            watching.on = step.number < steps - 2

        slots = {"scheduler": made.scheduler(), "guider": made.guider(), "cache": made.cache_policy()}
        denoise(canvas, model, **slots, blocks=made.blocks(kind), stop=made.stop(kind), on_step=on_step)
    return watching.seen


@pytest.mark.parametrize("kind", ["draw", "edit"])
@pytest.mark.parametrize("preset", ["exact", "balanced", "fast", "fast+interval", "source-reuse", "prompt-reuse"])
def test_no_step_waits_for_the_device(canvas, small_llada, preset, kind):
    made = Settings(preset=preset, num_inference_steps=16).filled(Defaults(), kind)
    for grids in ([(5, 5)], [(5, 5), (4, 6)]):
        watched(canvas(*grids), small_llada, made, kind)  # what is made once is made now
        assert watched(canvas(*grids), small_llada, made, kind) == []


def test_what_waits_is_seen(canvas, small_llada):
    made = Settings(preset="published", num_inference_steps=16).filled(Defaults(), "draw")
    assert "aten.nonzero.default" in watched(canvas((5, 5)), small_llada, made, "draw")


def test_layers_are_compiled_once_for_all():
    from torch._dynamo.testing import CompileCounter

    torch.manual_seed(0)
    sizes = {"d_model": 16, "n_heads": 2, "n_layers": 12, "mlp_hidden_size": 32, "vocab_size": 40}
    model = LLaDAForMultiModalGeneration(LLaDAConfig(**sizes, mask_token_id=1, initializer_range=0.2)).eval()
    counter, ids = CompileCounter(), torch.arange(2, 24).view(2, 11)
    with torch.inference_mode():
        plain = [model(ids[:, :length]).logits for length in (11, 7, 9)]
        model.compile_blocks(backend=counter)
        compiled = [model(ids[:, :length]).logits for length in (11, 7, 9)]
    for one, two in zip(plain, compiled, strict=True):
        torch.testing.assert_close(one, two)
    assert 1 <= counter.frame_count <= 3
