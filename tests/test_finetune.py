"""Fine-tuning: adapters and all weights, in one process and in shards over two, and after a kill."""

import json
import os
from dataclasses import replace

import pytest
import torch
from processes import in_processes
from safetensors.torch import load_file

from dimoo.pipeline import DiMOOPipeline
from dimoo_training import finetune as tuning
from dimoo_training.finetune import finetune
from dimoo_training.hosted_data import tokenise
from dimoo_training.placement import replicated
from dimoo_training.recipes import FineTune
from dimoo_training.run_state import Run

TOY = FineTune(steps=4, batch=1, accumulate=2, save_every_seconds=-1, log_every=1, lr=1e-2, precision="no")
RECIPES = {"lora": replace(TOY, rank=4), "full": TOY}


def quiet(words):
    pass


@pytest.fixture(scope="module")
def data(tiny_folder, tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    pipeline = DiMOOPipeline.from_pretrained(tiny_folder)
    images = torch.rand(3, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    for number, pixels in enumerate(images):
        from dimoo.tasks.base import to_image

        to_image(pixels).save(folder / f"{number}.png")
    items = [{"task": "text_to_image", "prompt": f"thing {i}", "image": f"{i % 3}.png"} for i in range(5)]
    items += [{"task": "understanding", "prompt": "what?", "images": ["0.png"], "answer": "a b c"} for _ in range(3)]
    (folder / "data.jsonl").write_text("".join(json.dumps(item) + "\n" for item in items))
    tokenise(folder / "data.jsonl", pipeline, folder / "out", log=quiet)
    return folder / "out"


def weights(folder):
    return load_file(folder / "model.safetensors")


def near(one, two, tolerance=2e-2):
    """Whether two checkpoints agree; they are stored as bfloat16."""
    assert one.keys() == two.keys()
    return all(torch.allclose(one[name].float(), two[name].float(), atol=tolerance) for name in one)


def losses(folder):
    entries = (json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines())
    return [[value for name, value in entry.items() if name in ("text_to_image", "understanding")] for entry in entries]


def trained(recipe, tiny_folder, data, out):
    finetune(str(tiny_folder), data, recipe, out, quiet)


def trained_whole(*given):
    """Two processes with all weights in each, instead of shards."""
    load = tuning.load
    tuning.sharded, tuning.load = replicated, lambda folder, config, recipe, empty: load(folder, config, recipe)
    trained(*given)


def dies(step, *given):
    """Ends all processes once `step` is done, before it is saved."""
    update = Run.update

    def last(run, scale):
        norm = update(run, scale)
        if run.step == step:
            os._exit(9)
        return norm

    Run.update = last
    trained(*given)


@pytest.mark.parametrize("name", RECIPES)
def test_one_process_trains_and_leaves_a_checkpoint(name, tiny_folder, data, tmp_path):
    assert in_processes(1, trained, RECIPES[name], tiny_folder, data, tmp_path) == [0]
    pipeline = DiMOOPipeline.from_pretrained(tmp_path / "checkpoint")
    before, after = weights(tiny_folder), weights(tmp_path / "checkpoint")
    changed = {key for key in before if not torch.equal(before[key].to(torch.bfloat16), after[key])}
    blocks = {key for key in before if ".blocks." in key and "norm" not in key}
    assert changed == blocks if name == "lora" else changed > blocks
    assert (tmp_path / "adapter" / "adapter_model.safetensors").exists() is (name == "lora")
    assert pipeline.generate("thing 1", seed=0, num_inference_steps=1).images


@pytest.mark.parametrize("name", RECIPES)
def test_shards_train_as_whole_weights_do_and_go_on_after_a_kill(name, tiny_folder, data, tmp_path):
    given, folders = (RECIPES[name], tiny_folder, data), [tmp_path / part for part in ("whole", "shards", "killed")]
    whole, shards, killed = folders
    assert in_processes(2, trained_whole, *given, whole) == [0, 0]
    assert in_processes(2, trained, *given, shards) == [0, 0]
    for one, two in zip(losses(whole), losses(shards), strict=True):
        assert one == pytest.approx(two, abs=2e-3)
    assert near(weights(whole / "checkpoint"), weights(shards / "checkpoint"))

    assert in_processes(2, dies, 3, *given, killed) == [9, 9]
    assert [path.name for path in killed.glob("state*")] == ["state-00000002"]
    assert in_processes(2, trained, *given, killed) == [0, 0]
    assert losses(killed) == losses(shards)
    assert all(torch.equal(value, weights(shards / "checkpoint")[key])
               for key, value in weights(killed / "checkpoint").items())  # fmt: skip
    assert [path.name for path in killed.glob("state*")] == ["state-00000004"]
