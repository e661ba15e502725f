"""Checkpoint folders: saved and loaded without loss, found by any name, refused when they are damaged."""

import json
import shutil

import pytest
import torch

from dimoo import assets
from dimoo.checkpoint import read_defaults
from dimoo.locate import EMBEDDED
from dimoo.pipeline import DiMOOPipeline
from dimoo.settings import Defaults
from dimoo.vocab import CheckpointError


def tokens(pipeline):
    return pipeline.generate("a star", seed=0, output_type="tokens").images


def equal(ours, others):
    return len(ours) == len(others) and all(map(torch.equal, ours, others))


def files_of(folder):
    return {path.relative_to(folder): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def copy_of(folder, tmp_path):
    return shutil.copytree(folder, tmp_path / "copy")


def test_saving_what_was_loaded_gives_the_same_files(tiny, tiny_folder, tmp_path):
    tiny.save_pretrained(tmp_path / "again")
    before, after = files_of(tiny_folder), files_of(tmp_path / "again")
    assert list(before) == list(after)
    assert [name for name in before if before[name] != after[name]] == []
    names = {str(name) for name in before}
    assert {"config.json", "model.safetensors", "model_index.json", "tokenizer.json"} <= names
    assert {"vqvae/config.json", "vqvae/diffusion_pytorch_model.safetensors"} <= names
    assert not any(str(tiny_folder).encode() in content for content in after.values())


def test_a_loaded_pipeline_draws_the_same(tiny, tmp_path):
    tiny.save_pretrained(tmp_path)
    again = DiMOOPipeline.from_pretrained(tmp_path)
    assert equal(tokens(tiny), tokens(again))
    assert again.defaults == tiny.defaults


def test_shards_are_read_too(tiny, tmp_path):
    tiny.save_pretrained(tmp_path, max_shard_size="20KB")
    assert len(list(tmp_path.glob("model-*.safetensors"))) > 1
    assert equal(tokens(tiny), tokens(DiMOOPipeline.from_pretrained(tmp_path)))


HOSTED_INDEX = {
    "_class_name": "LuminaDiMOOPipeline",
    "_diffusers_version": "0.35.0.dev0",
    "transformer": ["transformers", "LLaDAForMultiModalGeneration"],
    "vqvae": ["diffusers", "VQModel"],
}


def test_a_folder_as_hosted_loads(tiny, tiny_folder, tmp_path):
    folder = copy_of(tiny_folder, tmp_path)
    (folder / "model_index.json").write_text(json.dumps(HOSTED_INDEX))
    config = json.loads((folder / "config.json").read_text())
    del config["codebook_size"]  # the hosted config does not state it
    (folder / "config.json").write_text(json.dumps(config))
    hosted = DiMOOPipeline.from_pretrained(folder)
    assert hosted.codec.vocab == tiny.codec.vocab
    assert hosted.defaults == Defaults() and hosted.defaults.steps == 64
    hosted.set_defaults(tiny.defaults)
    assert equal(tokens(tiny), tokens(hosted))


def test_a_folder_without_an_index_loads_with_the_published_defaults(tiny_folder, tmp_path):
    folder = copy_of(tiny_folder, tmp_path)
    (folder / "model_index.json").unlink()
    assert DiMOOPipeline.from_pretrained(folder).defaults == Defaults()


def test_defaults_are_kept_in_the_index(tiny, tmp_path):
    tiny.set_defaults(Defaults(height=16, width=40, image_side=40, steps=3))
    tiny.save_pretrained(tmp_path)
    again = DiMOOPipeline.from_pretrained(tmp_path)
    assert again.defaults == tiny.defaults and again.codec.image_side == 40
    assert again.generate("a star", seed=0).images[0].size == (40, 16)
    assert again.generate("a star", seed=0, width=24).images[0].size == (24, 16)


def test_the_embedded_name(tiny, tiny_folder, tmp_path, monkeypatch):
    shutil.copytree(tiny_folder, tmp_path / EMBEDDED[0])
    monkeypatch.setattr(assets, "PACKAGED", tmp_path)
    monkeypatch.chdir(tmp_path.parent)
    assert equal(tokens(tiny), tokens(DiMOOPipeline.from_pretrained("dimoo-tiny")))


def test_a_hub_id_without_a_network_is_one_clear_error(tmp_path, monkeypatch):
    with pytest.raises(CheckpointError, match="'someone/model' from the hub"):
        DiMOOPipeline.from_pretrained("someone/model", cache_dir=tmp_path, local_files_only=True)

    def no_network(*args, **options):
        raise ConnectionError("no route to host")

    monkeypatch.setattr("dimoo.locate.snapshot_download", no_network)
    with pytest.raises(CheckpointError, match="'someone/model' from the hub: no route to host"):
        DiMOOPipeline.from_pretrained("someone/model")


def test_a_hub_id_is_fetched_as_asked(tiny, tiny_folder, monkeypatch):
    asked = {}

    def fetch(name, **options):
        asked.update(options, name=name)
        return str(tiny_folder)

    monkeypatch.setattr("dimoo.locate.snapshot_download", fetch)
    pipeline = DiMOOPipeline.from_pretrained("someone/model", revision="v1", token="secret", cache_dir="/there")
    assert equal(tokens(tiny), tokens(pipeline))
    stated = {name: asked[name] for name in ("name", "revision", "token", "cache_dir")}
    assert stated == {"name": "someone/model", "revision": "v1", "token": "secret", "cache_dir": "/there"}
    assert "*.safetensors" in asked["allow_patterns"] and "*.bin" not in asked["allow_patterns"]


@pytest.mark.parametrize("name", ["nowhere", "a/b/c", "/no/such/folder", "dimoo-huge"])
def test_a_name_that_is_none_lists_what_could_be(name):
    with pytest.raises(CheckpointError, match=r"neither a folder.*dimoo-tiny") as error:
        DiMOOPipeline.from_pretrained(name)
    assert repr(name) in str(error.value)


DAMAGES = {
    "the tokenizer cannot be loaded": lambda folder: (folder / "tokenizer.json").write_text("{"),
    "vqvae: the image tokenizer cannot be loaded": lambda folder: shutil.rmtree(folder / "vqvae"),
    "config.json": lambda folder: (folder / "config.json").unlink(),
    "mask_token_id": lambda folder: rewrite(folder / "config.json", mask_token_id=3),
    "image_token_offset=\\d+ .*</user>": lambda folder: rewrite(folder / "config.json", image_token_offset=None),
    "codebook_size=32": lambda folder: rewrite(folder / "config.json", codebook_size=32),
    "model_index.json: not valid JSON": lambda folder: (folder / "model_index.json").write_text("{"),
    "unknown default.*stepz": lambda folder: rewrite(folder / "model_index.json", defaults={"stepz": 3}),
}


def rewrite(path, **fields):
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


@pytest.mark.parametrize("words", DAMAGES)
def test_a_damaged_folder_is_refused_by_name(words, tiny_folder, tmp_path):
    folder = copy_of(tiny_folder, tmp_path)
    DAMAGES[words](folder)
    with pytest.raises(ValueError, match=words):
        DiMOOPipeline.from_pretrained(folder)


def test_the_dtype_is_the_models_and_not_the_image_tokenizers(tiny_folder):
    pipeline = DiMOOPipeline.from_pretrained(tiny_folder, dtype=torch.bfloat16)
    assert pipeline.model.dtype == torch.bfloat16 and pipeline.vqvae.dtype == torch.float32
    assert not pipeline.model.training and not pipeline.vqvae.training
    assert pipeline.generate("a star", seed=0).images[0].size == (32, 32)


def test_it_is_a_diffusers_pipeline(tiny):
    assert set(tiny.components) == {"model", "tokenizer", "vqvae"}
    assert tiny.to(torch.float32) is tiny
    rebuilt = DiMOOPipeline(**tiny.components, defaults={"steps": 2, "height": 16, "width": 16, "image_side": 64})
    assert rebuilt.generate("a star", seed=0).forwards == 4


def test_defaults_that_are_none_are_named(tmp_path):
    with pytest.raises(ValueError, match=r"unknown default\(s\) size, stepz; allowed: block_length"):
        Defaults.read({"stepz": 1, "size": 2, "steps": 3})
    assert read_defaults(tmp_path) == Defaults()
