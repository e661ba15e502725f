"""What a call refuses, before anything is computed, with the value, the reason and what is allowed."""

import pytest
import torch
from PIL import Image

from dimoo.tasks import Ask, TextToImage


def test_unknown_options_are_named_with_the_nearest(tiny, photo):
    with pytest.raises(TypeError, match=r"generate has no option 'guidance_scle', did you mean 'guidance_scale'\?"):
        tiny.generate("a star", guidance_scle=3)
    with pytest.raises(TypeError, match=r"generate has no option 'heigth', did you mean 'height'\?") as error:
        tiny("a star", heigth=3)
    known = str(error.value).partition("there is: ")[2].split(", ")
    assert {"cache", "seed", "width", "callback_on_step_end", "top_p"} <= set(known)
    assert {"self", "settings", "prompt", "length", "preserve"}.isdisjoint(known)
    with pytest.raises(TypeError, match="ask has no option 'height'"):
        tiny.ask("what?", height=3)
    with pytest.raises(TypeError, match=r"inpaint has no option 'preserv', did you mean 'preserve'\?"):
        tiny.inpaint("a star", photo, Image.new("L", photo.size, 255), preserv=False)
    with pytest.raises(TypeError, match="generate has no option 'image'"):
        tiny("a star", task="generate", image=photo)


REFUSED = {
    "height must be a positive multiple of 8, got 0": {"height": 0},
    "width must be a positive multiple of 8, got 20": {"width": 20},
    "unknown output_type 'jpg'; allowed: pil, np, pt, tokens": {"output_type": "jpg"},
    "unknown callback tensor.*latents.*allowed: ids": {"callback_on_step_end_tensor_inputs": ["latents"]},
    "num_images_per_prompt must be at least 1, got 0": {"num_images_per_prompt": 0},
    "num_inference_steps must be a whole number of at least 1, got 0": {"num_inference_steps": 0},
    "num_inference_steps must be a whole number of at least 1, got 2.5": {"num_inference_steps": 2.5},
    "block_length must be a whole number": {"block_length": -1},
    "guidance_scale must be 0 or more, got -1": {"guidance_scale": -1},
    "guidance_scale must be 0 or more, got nan": {"guidance_scale": float("nan")},
    "image_guidance_scale must be 0 or more, got inf": {"image_guidance_scale": float("inf")},
    "temperature must be 0 or more": {"temperature": -0.1},
    "rank_temperature must be 0 or more": {"rank_temperature": -0.1},
    "top_k must be at least 1": {"top_k": 0},
    "top_p must lie in": {"top_p": 1.5},
    "min_p must lie in": {"min_p": 0},
    "interval needs 0 <= start < stop <= 1, got 0.8 and 0.2": {"guidance_interval": (0.8, 0.2)},
    "unknown cache 'max-logits', did you mean 'max-logit'": {"cache": "max-logits"},
    "unknown quota 'cosin', did you mean 'cosine'": {"quota": "cosin"},
    "unknown guider 'txt', did you mean 'text'": {"guidance": "txt"},
    "unknown noise 'float16'": {"noise": "float16"},
    "unknown annealing 'cosine'": {"anneal": "cosine"},
    "not both": {"seed": 0, "generator": torch.Generator()},
    "1 samples need 1 generators, got 2": {"generator": [torch.Generator()] * 2},
    "the prompt is empty": {"prompt": " "},
    "a prompt is a string, got int": {"prompt": 5},
    "at least one prompt": {"prompt": []},
    "unknown task 'paint'; allowed: generate, edit, inpaint, ask": {"task": "paint"},
}


@pytest.mark.parametrize("words", REFUSED)
def test_values_that_cannot_be_are_refused_before_anything_is_computed(words, tiny):
    called = []
    tiny.model.register_forward_hook(lambda *given: called.append(1))
    with pytest.raises(ValueError, match=words):
        tiny(**{"prompt": "a star", "callback_on_step_end": lambda *given: called.append(1)} | REFUSED[words])
    assert not called


def test_pictures_that_cannot_be_are_refused(tiny, photo):
    with pytest.raises(ValueError, match="unknown kind of edit 'paint'"):
        tiny.edit("x", photo, edit="paint")
    with pytest.raises(ValueError, match="edit_other takes one picture, got 3"):
        tiny.edit("x", [photo] * 3)
    with pytest.raises(ValueError, match="mask is empty"):
        tiny.inpaint("x", photo, Image.new("L", photo.size, 0))
    with pytest.raises(ValueError, match="no_such_file"):
        tiny.edit("x", "no_such_file.png")
    with pytest.raises(ValueError, match="length must be at least 1, got 0"):
        tiny.ask("what?", length=0)
    for make in (tiny.ask, tiny.write):
        with pytest.raises(ValueError, match=r"10 tokens does not divide into blocks of 4; allowed: .* 1, 2, 5, 10"):
            make("what?", length=10, block_length=4)
    with pytest.raises(ValueError, match="not a mixture"):
        tiny.run([TextToImage("a star", 16, 16), Ask("what?")])
    with pytest.raises(ValueError, match="no branch 'uncond'"):
        tiny.ask("what?", guidance="text", guidance_scale=1.0)
