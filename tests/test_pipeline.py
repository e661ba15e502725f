"""The pipeline: outputs, seeds, settings, routing, callbacks, and interruption."""

import numpy as np
import pytest
import torch
from PIL import Image

from dimoo.guidance import GuidanceInterval, TextGuidance
from dimoo.pipeline import DiMOOPipelineOutput
from dimoo.settings import Defaults, Settings
from dimoo.tasks import TextToImage
from dimoo.tasks.base import to_pixels


def tokens(pipeline, prompt="a star", **options):
    return pipeline.generate(prompt, output_type="tokens", **{"seed": 0} | options).images


def equal(ours, others):
    return len(ours) == len(others) and all(map(torch.equal, ours, others))


# What is given back


def test_outputs_of_every_type(tiny):
    made = {
        kind: tiny.generate(["a star", "a cat"], seed=0, output_type=kind) for kind in ("pil", "np", "pt", "tokens")
    }
    assert all(isinstance(output, DiMOOPipelineOutput) and output.texts is None for output in made.values())
    pil, array, tensor, codes = (output.images for output in made.values())
    assert [image.size for image in pil] == [(32, 32)] * 2 and pil[0].mode == "RGB"
    assert array.shape == (2, 32, 32, 3) and array.dtype == np.float32
    assert tensor.shape == (2, 3, 32, 32) and tensor.dtype == torch.float32
    assert np.array_equal(array, tensor.permute(0, 2, 3, 1).numpy())
    for image, pixels, grid in zip(pil, tensor, codes, strict=True):
        assert torch.equal(to_pixels(image), pixels)
        assert grid.shape == (4, 4) and torch.equal(to_pixels(tiny.codec.draw(grid)), pixels)
    assert not torch.equal(tensor[0], tensor[1])


def test_pictures_of_several_sizes_stay_a_list(tiny):
    tasks = [TextToImage("a star", 16, 24), TextToImage("a star", 32, 16)]
    for kind, shapes in (("pt", [(3, 16, 24), (3, 32, 16)]), ("np", [(16, 24, 3), (32, 16, 3)])):
        images = tiny.run(tasks, seed=0, output_type=kind).images
        assert isinstance(images, list) and [tuple(image.shape) for image in images] == shapes
    alone = tiny.run(tasks[1:], seed=0, index=1, output_type="pt").images[0]
    assert torch.equal(alone, tiny.run(tasks, seed=0, output_type="pt").images[1])


def test_a_tuple_when_asked(tiny):
    (images,) = tiny.generate("a star", seed=0, return_dict=False)
    assert isinstance(images[0], Image.Image)


def test_answers_are_texts_or_tokens(tiny, photo):
    output = tiny.ask(["what is it?", "how many objects are there?"], photo, seed=0)
    assert output.images is None and len(output.texts) == 2 and all(isinstance(text, str) for text in output.texts)
    ids = tiny.ask("what is it?", photo, seed=0, output_type="tokens", length=5).texts[0]
    assert len(ids) == 7 and ids[0] == tiny.codec.vocab.boa
    assert tiny.ask("what is it?", photo, seed=0).texts[0] == output.texts[0]


def test_the_picture_and_the_earlier_turns_matter_to_an_answer(tiny, photo):
    answers = [
        tiny.ask("what?", **given, output_type="tokens", length=18).texts[0].tolist()
        for given in ({}, {"image": photo}, {"image": [photo, photo]}, {"history": [("a?", "b")]})
    ]
    assert len({tuple(answer) for answer in answers}) == 4


def test_forwards_are_counted(tiny, photo):
    assert tiny.generate("a star", seed=0).forwards == 8
    assert tiny.generate("a star", seed=0, guidance_scale=0.0).forwards == 4
    assert tiny.generate("a star", seed=0, num_inference_steps=3).forwards == 6
    assert tiny.edit("red", photo, seed=0).forwards == 12
    assert tiny.generate("a star", seed=0, guidance_interval=(0.5, 1.0)).forwards == 6


# Seeds


def test_each_picture_of_a_batch_can_be_made_alone(tiny):
    prompts = ["a star", "a red circle to the left of a blue square"]
    batch = tiny.generate(prompts, seed=5, num_images_per_prompt=2, output_type="tokens")
    assert batch.seeds == [(5, 0), (5, 1), (5, 2), (5, 3)]
    for k, codes in enumerate(batch.images):
        assert torch.equal(codes, tokens(tiny, prompts[k // 2], seed=5, index=k)[0])
    assert len({tuple(codes.flatten().tolist()) for codes in batch.images}) == 4


def test_zero_is_a_seed(tiny):
    first = tiny.generate("a star", seed=0, output_type="tokens")
    assert first.seeds == [(0, 0)]
    assert equal(first.images, tokens(tiny, seed=0))
    assert not equal(first.images, tokens(tiny, seed=1))


def test_a_drawn_seed_is_told_and_repeats(tiny):
    one, two = (tiny.generate("a star", output_type="tokens") for _ in range(2))
    (seed, index) = one.seeds[0]
    assert (seed, index) != two.seeds[0]
    assert equal(one.images, tokens(tiny, seed=seed, index=index))


def test_generators(tiny):
    def made(seed):
        return torch.Generator().manual_seed(seed)

    one = tokens(tiny, ["a star"] * 2, seed=None, generator=made(3))
    assert equal(one, tokens(tiny, ["a star"] * 2, seed=None, generator=made(3)))
    assert not equal(one, tokens(tiny, ["a star"] * 2, seed=None, generator=made(4)))
    each = tokens(tiny, "a star", seed=None, num_images_per_prompt=2, generator=[made(7), made(8)])
    assert equal(each[1:], tokens(tiny, "a star", seed=None, generator=[made(8)]))
    assert not torch.equal(*each)


# Settings


def test_the_prompt_the_scale_and_the_temperature_matter(tiny):
    size = {"height": 64, "width": 64}
    plain = tokens(tiny, **size)
    changes = {"prompt": "a blue cat"}, {"guidance_scale": 9.0}, {"temperature": 0.0}, {"num_inference_steps": 2}
    more = {"quota": "even", "rank_temperature": 0.0}, {"noise": "published-bf16"}, {"top_k": 1}, {"min_p": 0.9}
    for change in (*changes, *more):
        assert not equal(plain, tokens(tiny, **size, **change)), change
    assert equal(
        plain, tokens(tiny, **size, guidance="text", guidance_scale=2.0, quota="cosine", cache="none", top_p=1.0)
    )


def test_variants_are_objects_names_or_places(tiny, tmp_path):
    file = tmp_path / "mine.py"
    file.write_text("def all_at_once(masks, steps):\n    return [masks] + [0] * (steps - 1)\n")
    output = tiny.generate("a star", seed=0, quota=f"{file}:all_at_once", guidance=TextGuidance(2.0))
    assert output.forwards == 2
    interval = GuidanceInterval(TextGuidance(2.0), 0.5, 1.0)
    one = tokens(tiny, guidance=interval)
    assert equal(one, tokens(tiny, guidance_interval=(0.5, 1.0)))


def test_settings_take_the_checkpoints_defaults_by_task():
    scales = {"guidance_scale": 1.0, "text_guidance_scale": 2.0, "image_guidance_scale": 3.0}
    defaults = Defaults(steps=7, text_steps=9, edit_temperature=0.25, **scales)
    image = Settings().filled(defaults, "draw")
    edit = Settings().filled(defaults, "edit")
    text = Settings(temperature=0.5).filled(defaults, "text")
    assert (image.num_inference_steps, image.guidance_scale, image.guidance, image.quota) == (7, 1.0, "text", "cosine")
    assert (edit.guidance_scale, edit.image_guidance_scale, edit.guidance) == (2.0, 3.0, "text+image")
    assert (text.num_inference_steps, text.guidance, text.quota, text.temperature) == (9, "none", "even", 0.5)
    assert (image.temperature, Settings().filled(defaults, "text").temperature) == (1.0, 0.0)
    assert edit.temperature == 0.25
    assert Settings(guidance_scale=0.0).filled(defaults, "draw").guidance_scale == 0.0


# Routing


def test_a_call_goes_where_its_inputs_say(tiny, photo):
    mask = Image.new("L", photo.size, 255)
    same = [
        (tiny("a star", seed=0), tiny.generate("a star", seed=0)),
        (tiny("make it red", image=photo, seed=0), tiny.edit("make it red", photo, seed=0)),
        (tiny("a star", image=photo, mask_image=mask, seed=0), tiny.inpaint("a star", photo, mask, seed=0)),
        (tiny("red", task="edit", image=photo, edit="canny_dense", seed=0),
         tiny.edit("red", photo, edit="canny_dense", seed=0)),
    ]  # fmt: skip
    for one, two in same:
        assert torch.equal(to_pixels(one.images[0]), to_pixels(two.images[0]))
    assert tiny("what?", task="ask", image=photo).texts == tiny.ask("what?", photo).texts
    assert tiny("what?", task="ask").texts == tiny.ask("what?").texts
    assert tiny("x", image=photo, seed=0).images[0].size == (64, 64)


def test_sources_may_be_anything_that_is_a_picture(tiny, photo, tmp_path):
    photo.save(tmp_path / "photo.png")
    sources = photo, tmp_path / "photo.png", np.asarray(photo), to_pixels(photo)
    made = [tiny.edit("red", source, seed=0, output_type="tokens").images[0] for source in sources]
    assert equal(made, made[:1] * 4)


def test_in_painting_keeps_what_is_outside(tiny, photo):
    mask = Image.new("L", photo.size, 0)
    mask.paste(255, (20, 12, 47, 40))
    made = to_pixels(tiny.inpaint("a star", photo, mask, seed=0).images[0])
    outside = to_pixels(mask)[0] == 0
    assert torch.equal(made[:, outside], to_pixels(photo)[:, outside])
    assert not torch.equal(made, to_pixels(photo))


def test_out_painting_is_in_painting_of_the_room(tiny, photo):
    small = photo.crop((0, 0, 32, 40))
    made = to_pixels(tiny.outpaint("a star", small, (8, 0, 16, 8), seed=0).images[0])
    assert made.shape == (3, 48, 56)
    assert torch.equal(made[:, :40, 8:40], to_pixels(small))


# Callbacks and interruption


def test_a_callback_sees_every_step_and_changes_nothing(tiny):
    seen = []

    def watch(pipeline, step, tick, tensors):
        assert pipeline is tiny
        seen.append((step, {name: tensor.clone() for name, tensor in tensors.items()}, tensors["ids"]))

    names = ["ids", "confidence", "write"]
    watched = tokens(tiny, callback_on_step_end=watch, callback_on_step_end_tensor_inputs=names)
    assert equal(watched, tokens(tiny))
    assert [step for step, *_ in seen] == [0, 1, 2, 3]
    mask = tiny.codec.vocab.mask
    left = [int((tensors["ids"] == mask).sum()) for _, tensors, _ in seen]
    assert left == sorted(left, reverse=True) and left[-1] == 0 and len(set(left)) == 4
    assert sum(int(tensors["write"].sum()) for _, tensors, _ in seen) == 16
    assert all(tensors["confidence"].min() >= 0 and tensors["confidence"].max() <= 1 for _, tensors, _ in seen)
    assert all(torch.equal(tensors["ids"], kept) for _, tensors, kept in seen)  # what was given stays as it was


def test_a_callback_may_return_other_ids(tiny):
    vocab = tiny.codec.vocab

    def all_fives(pipeline, step, tick, tensors):
        ids = tensors["ids"]
        filled = (ids >= vocab.codes.start) & (ids < vocab.codes.stop)
        return {"ids": ids.masked_fill(filled, vocab.image_offset + 5)}

    assert (tokens(tiny, callback_on_step_end=all_fives)[0] == 5).all()


def test_a_callback_cannot_touch_what_is_fixed_or_open_what_is_filled(tiny, photo):
    mask = Image.new("L", photo.size, 0)
    mask.paste(255, (0, 0, 32, 64))
    vocab = tiny.codec.vocab
    seen = []

    def meddle(pipeline, step, number, tensors):
        seen.append(tensors["ids"])
        return {"ids": torch.full_like(tensors["ids"], vocab.mask if step < 3 else vocab.image_offset + 9)}

    codes = tiny.inpaint("a star", photo, mask, seed=0, output_type="tokens", callback_on_step_end=meddle).images[0]
    assert torch.equal(codes[:, 4:], tiny.codec.read(photo)[1][:, 4:])
    assert (codes[:, :4] == 9).all()
    left = [int((ids == vocab.mask).sum()) for ids in seen]
    assert left == sorted(left, reverse=True) and left[-1] == 0


def test_ids_that_cannot_be_a_canvas_are_refused(tiny):
    for wrong in (lambda ids: ids[:, 1:], lambda ids: ids.float()):
        with pytest.raises(ValueError, match="a callback must return ids of shape and dtype"):
            tokens(tiny, callback_on_step_end=lambda *given, wrong=wrong: {"ids": wrong(given[-1]["ids"])})


def test_interruption_stops_within_one_step_and_shows_what_is_there(tiny):
    steps = []

    def stop(pipeline, step, tick, tensors):
        steps.append(step)
        pipeline.interrupt = step == 1

    output = tiny.generate("a star", seed=0, callback_on_step_end=stop)
    assert steps == [0, 1] and output.interrupted and output.forwards == 4
    codes = tokens(tiny, callback_on_step_end=stop)[0]
    there = (codes >= 0) & (codes < 64)
    assert there.any() and not there.all()
    pixels = to_pixels(output.images[0])
    grey = ((pixels * 255).round() == 128).all(0).view(4, 8, 4, 8).all(3).all(1)
    assert torch.equal(grey, ~there)
    whole = tiny.generate("a star", seed=0)
    assert not whole.interrupted and whole.forwards == 8  # the next call starts afresh


def test_an_interrupted_answer_is_what_was_said(tiny):
    def stop(pipeline, *given):
        pipeline.interrupt = True

    output = tiny.ask("what?", callback_on_step_end=stop)
    assert output.interrupted and output.forwards == 1 and isinstance(output.texts[0], str)


def test_the_progress_bar_can_be_turned_off(tiny, capfd):
    tiny.generate("a star", seed=0)
    assert "it/s" not in capfd.readouterr().err
    tiny.set_progress_bar_config(disable=False)
    tiny.generate("a star", seed=0)
    assert "4/4" in capfd.readouterr().err
