"""The engine: batched answers are the single ones, bounds hold, cancelling and closing end every job with a word."""

from __future__ import annotations

import threading

import pytest

from dimoo.engine import Cancelled, Closed, Engine, Limits, QueueFull
from dimoo.settings import Settings
from dimoo.tasks import Ask, Inpaint, TextToImage


def drawing(words="a red circle", side=32):
    return TextToImage(words, side, side)


@pytest.fixture
def gate(tiny):
    """A pipeline whose first run waits until the returned event is set; `runs` notes the size of each batch."""
    released, plain = threading.Event(), tiny.run
    tiny.runs = []

    def run(tasks, **options):
        tiny.runs.append(len(tasks))
        assert released.wait(20)
        return plain(tasks, **options)

    tiny.run = run
    return released


def wait_for(condition):
    for _ in range(2000):
        if condition():
            return
        threading.Event().wait(0.005)
    raise AssertionError("it never happened")


def test_a_batched_answer_is_the_single_one(tiny, gate, photo):
    requests = [(drawing(), 7), (drawing("a blue square", 16), 8), (Inpaint("a star", photo, photo.convert("L")), 9)]
    with Engine(tiny) as engine:
        blocker = engine.submit([drawing()], seed=0)
        wait_for(lambda: engine.running)
        jobs = [engine.submit([task], seed=seed) for task, seed in requests]
        gate.set()
        blocker.wait(20)
        together = [job.wait(20).answers[0] for job in jobs]
    assert tiny.runs == [1, 3]
    for (task, seed), picture in zip(requests, together, strict=True):
        alone = tiny.run([task], seed=seed).images[0]
        assert alone.tobytes() == picture.tobytes()


def test_samples_of_a_job_are_numbered_and_split(tiny):
    with Engine(tiny, Limits(batch=2)) as engine:
        result = engine.submit([drawing()] * 3, seed=5, index=1).wait(20)
    assert result.seeds == [(5, 1), (5, 2), (5, 3)]
    assert result.forwards == tiny.run([drawing()], seed=5).forwards
    expected = tiny.run([drawing()], seed=5, num_images_per_prompt=4).images[1:]
    assert [a.tobytes() for a in result.answers] == [b.tobytes() for b in expected]


def test_other_kinds_and_settings_do_not_share_a_batch(tiny, gate):
    with Engine(tiny) as engine:
        jobs = [engine.submit([drawing()], seed=0)]
        wait_for(lambda: engine.running)
        jobs += [engine.submit([drawing()], Settings(temperature=0.5)), engine.submit([Ask("what?", length=4)])]
        jobs += [engine.submit([drawing()], Settings(temperature=0.5))]
        gate.set()
        for job in jobs:
            job.wait(20)
    assert tiny.runs == [1, 2, 1]


def test_a_full_queue_refuses(tiny, gate):
    with Engine(tiny, Limits(queue=2)) as engine:
        jobs = [engine.submit([drawing()])]
        wait_for(lambda: engine.running)
        jobs.append(engine.submit([drawing()] * 2))
        with pytest.raises(QueueFull, match="2 samples are waiting, the limit is 2"):
            engine.submit([drawing()])
        gate.set()
        for job in jobs:
            job.wait(20)


def test_a_bad_neighbour_spoils_nothing(tiny, gate):
    with Engine(tiny) as engine:
        engine.submit([drawing()])
        wait_for(lambda: engine.running)
        bad, good = engine.submit([drawing(side=13)]), engine.submit([drawing()], seed=1)
        gate.set()
        with pytest.raises(ValueError, match="13"):
            bad.wait(20)
        assert good.wait(20).answers[0].size == (32, 32)


def test_cancelling_stops_within_a_step(tiny):
    steps, unending = [], Settings(num_inference_steps=16)
    with Engine(tiny) as engine:
        job = engine.submit([drawing()], unending, watched=True)
        see = job.samples[0].see

        def cancel_at_three(step, tensors, row):
            see(step, tensors, row)
            steps.append(step)
            if step == 2:
                job.cancel()

        job.samples[0].see = cancel_at_three
        with pytest.raises(Cancelled):
            job.wait(20)
        again = engine.submit([drawing()], seed=1)
        assert again.wait(20).answers[0].size == (32, 32)
    assert steps == [0, 1, 2]


def test_a_cancelled_job_leaves_the_queue(tiny, gate):
    with Engine(tiny) as engine:
        engine.submit([drawing()])
        wait_for(lambda: engine.running)
        waiting, other = engine.submit([drawing()]), engine.submit([drawing()])
        waiting.cancel()
        gate.set()
        other.wait(20)
    assert waiting.cancelled and tiny.runs == [1, 1]


def test_watching_shows_the_canvas(tiny):
    """Beside a larger one, whose padding must not be seen."""
    with Engine(tiny) as engine:
        job = engine.submit([drawing(), drawing(side=64)], Settings(num_inference_steps=12), seed=3, watched=True)
        for _ in job.watch(every=0.001):
            pass
        result, sample = job.wait(), job.samples[0]
    assert job.step == job.total == 24
    code = tiny.codec.vocab.read_codes(sample.ids[1:-1].cpu(), 4, 4)
    assert tiny.codec.draw(code).tobytes() == result.answers[0].tobytes()
    written = tiny.codec.vocab.cells(sample.confidence[1:-1], 4, 4)
    assert ((written > 0) & (written <= 1)).all()


def test_every_step_of_a_traced_job_is_kept(tiny):
    with Engine(tiny) as engine:
        job = engine.submit([Ask("what?", length=6)], Settings(num_inference_steps=4), watched=True, traced=True)
        job.wait(20)
    trace = job.samples[0].trace
    masks = [int((ids == tiny.codec.vocab.mask).sum()) for ids in trace]
    assert len(trace) == 4 and masks == sorted(masks, reverse=True) and masks[-1] == 0


@pytest.mark.parametrize("search", ["best-of", "hierarchical"])
def test_a_search_is_the_pipelines_and_its_tries_fill_batches(tiny, gate, search):
    settings, words = Settings(best_of=4, search=search, num_inference_steps=8), ("a star", "a red circle", "a heart")
    with Engine(tiny, Limits(batch=8)) as engine:
        blocker = engine.submit([drawing()])
        wait_for(lambda: engine.running)
        jobs = [engine.submit([drawing(one)], settings, seed=k, watched=True) for k, one in enumerate(words)]
        gate.set()
        made = [job.wait(20).answers[0] for job in (*jobs, blocker)][:3]
    assert tiny.runs == [1, 2, 1]
    for k, (one, job) in enumerate(zip(words, jobs, strict=True)):
        call = {"best_of": 4, "search": search, "num_inference_steps": 8}
        assert tiny.run([drawing(one)], seed=k, **call).images[0].tobytes() == made[k].tobytes()
        assert job.step == job.total and job.samples[0].ids is not None


def test_closing_finishes_what_was_taken_and_refuses_more(tiny, gate):
    engine = Engine(tiny)
    jobs = [engine.submit([drawing()], seed=k) for k in range(3)]
    engine.drain()
    with pytest.raises(Closed):
        engine.submit([drawing()])
    gate.set()
    engine.close()
    assert all(job.wait(0).answers for job in jobs)


def test_what_cannot_be_finished_in_time_is_refused_aloud(tiny, gate):
    engine = Engine(tiny)
    jobs = [engine.submit([drawing()]) for _ in range(2)]
    wait_for(lambda: engine.running)
    jobs.append(engine.submit([drawing()], Settings(temperature=0.5)))
    engine.drain(0.01)
    for job in jobs:
        with pytest.raises(Closed, match="shutting down"):
            job.wait(20)
    gate.set()
    engine.close()


def test_waiting_for_room(tiny):
    with Engine(tiny, Limits(queue=2, batch=2)) as engine:
        jobs = [engine.submit([drawing()], seed=k, wait=True) for k in range(7)]
        assert len({job.wait(20).answers[0].tobytes() for job in jobs}) > 1
    with pytest.raises(ValueError, match="at least 1"):
        Limits(batch=0)
