"""A sound checkpoint loads in every way transformers has; a broken one is refused before a weight is read."""

import json
import shutil
import struct
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModel, PreTrainedModel

from dimoo.model import LLaDAConfig, LLaDAForMultiModalGeneration, check_checkpoint
from dimoo.model.files import read_header, read_tensors
from dimoo.vocab import CheckpointError

MODEL = Path(__file__).parent / "golden" / "mha" / "model"
WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
WTE, HEAD, NORM = (f"model.transformer.{name}.weight" for name in ("wte", "ff_out", "ln_f"))
POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 734064\n"
COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def folder(tmp_path):
    """A copy of a sound checkpoint."""
    return Path(shutil.copytree(MODEL, tmp_path / "model"))


@pytest.fixture
def sharded(folder):
    LLaDAForMultiModalGeneration.from_pretrained(folder).save_pretrained(folder, max_shard_size="100KB")
    (folder / WEIGHTS).unlink()
    return folder


def same(one, two):
    """Equal names and bits."""
    one, two = one.state_dict(), two.state_dict()
    assert one.keys() == two.keys()
    return all(torch.equal(one[name], two[name]) for name in one)


def set_config(folder, **fields):
    config = json.loads((folder / "config.json").read_text()) | fields
    (folder / "config.json").write_text(json.dumps({k: v for k, v in config.items() if v is not ...}))


def set_tensors(folder, **tensors):
    """Replace tensors of the single weights file; `...` removes one."""
    found = load_file(folder / WEIGHTS) | tensors
    save_file({k: v for k, v in found.items() if v is not ...}, folder / WEIGHTS)


def set_header(folder, tensor, **entry):
    """Change what the weights file's header says of a tensor, and nothing else."""
    data = (folder / WEIGHTS).read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + length])
    header[tensor] |= entry
    text = json.dumps(header).encode()
    (folder / WEIGHTS).write_bytes(struct.pack("<Q", len(text)) + text + data[8 + length :])


def cut(path, keep):
    path.write_bytes(path.read_bytes()[:keep])


def shards(folder):
    return sorted(folder.glob("model-*.safetensors"))


def set_index(folder, **homes):
    index = json.loads((folder / INDEX).read_text())
    index["weight_map"] = {k: v for k, v in (index["weight_map"] | homes).items() if v is not ...}
    (folder / INDEX).write_text(json.dumps(index))


# (what was done to the folder, words of the message)
FIELDS = [  # of config.json; `...` removes one
    ({"d_model": ...}, "config.json lacks d_model"),
    ({"rope_theta": None, "n_layers": ...}, "config.json lacks n_layers, rope_theta"),
    ({"d_model": "64"}, "config.json: d_model='64', but it must be a positive int"),
    ({"n_layers": 3.0}, "config.json: n_layers=3.0"),
    ({"rms_norm_eps": True}, "rms_norm_eps=True, but it must be a positive float"),
    ({"n_heads": 0}, "config.json: n_heads=0"),
    ({"n_kv_heads": "4"}, "config.json: n_kv_heads='4'"),
    ({"rope": False}, "config.json: rope=False is not supported", "[True]"),
    ({"activation_type": "gelu"}, "activation_type='gelu'", "silu"),
    ({"n_heads": 3}, "config.json: d_model=64 is not a multiple of n_heads=3"),
    ({"n_kv_heads": 3}, "n_heads=4 is not a multiple of n_kv_heads=3"),
    ({"mask_token_id": -1}, "config.json: mask_token_id=-1, but it must be a non-negative int"),
    ({"mask_token_id": 320}, "mask_token_id=320, vocab_size=320"),
    ({"embedding_size": 300}, "vocab_size=320, embedding_size=300"),
    ({"n_layers": 1}, "12 of 12 tensors; 18 that the model does not have", "n_layers=1"),
    ({"n_layers": 9}, "30 of 84 tensors", "blocks.3.attn_norm.weight", "and 50 more", "n_layers=9"),
    ({"weight_tying": True}, "29 of 29 tensors; 1 that", HEAD, "weight_tying=True"),
    ({"qk_norm": True}, "30 of 36 tensors", "k_norm", "qk_norm=True"),
    ({"vocab_size": 330, "embedding_size": None}, WTE, "[320, 64]", "[330, 64]", "vocab_size=330"),
    ({"n_kv_heads": 2}, "k_proj.weight", "[64, 64]", "[32, 64]", "n_kv_heads=2"),
    ({"mlp_hidden_size": 96}, "ff_proj.weight", "[160, 64]", "[96, 64]", "mlp_hidden_size=96"),
]
CONTENTS = [  # of a whole file; None removes it
    ("config.json", None, "config.json is missing"),
    ("config.json", b"{", "config.json: invalid json", "line 1"),
    ("config.json", b"[]", "config.json: expected a json object, found list"),
    ("config.json", b"\xff\xfe{}", "config.json: invalid json"),
    ("config.json", POINTER, "config.json is a Git LFS pointer"),
    (WEIGHTS, None, "no weights", WEIGHTS, INDEX),
    (WEIGHTS, b"", f"{WEIGHTS} is cut in its header (0 bytes)"),
    (WEIGHTS, b"12345", f"{WEIGHTS} is cut in its header (5 bytes)"),
    (WEIGHTS, POINTER, f"{WEIGHTS} is a Git LFS pointer", "git lfs pull"),
    (WEIGHTS, b"<html>Not found</html>", "not safetensors"),
    (WEIGHTS, struct.pack("<Q", 4) + b"{,,}", f"{WEIGHTS}: invalid json"),
    (WEIGHTS, struct.pack("<Q", 9) + b'{"a": {}}', f"{WEIGHTS}: its header does not describe tensors"),
]
TENSORS = [  # of the weights file; `...` removes one
    ({WTE: ...}, "29 of 30 tensors", f"missing: {WTE}", "n_layers=3"),
    ({"stray": torch.zeros(2)}, "30 of 30 tensors; 1 that the model does not have: stray"),
    ({WTE: ..., "wte": torch.zeros(320, 64)}, f"29 of 30 tensors; missing: {WTE}; 1 that", "not have: wte"),
    ({WTE: torch.zeros(64, 320)}, WEIGHTS, WTE, "[64, 320]", "the model [320, 64]", "vocab_size=320"),
    ({WTE: torch.zeros(320, 64).char()}, WEIGHTS, WTE, "dtype I8", "F64, F32, F16, BF16"),
]
OTHERS = [
    (lambda f: (f / WEIGHTS).rename(f / "pytorch_model.bin"), "only pickled weights", "pytorch_model.bin"),
    (lambda f: cut(f / WEIGHTS, 900), f"{WEIGHTS} is cut in its header (900 bytes)"),
    (lambda f: cut(f / WEIGHTS, -1), f"{WEIGHTS} is cut: 734063 of 734064 bytes, 1 of 30 tensors"),
    (lambda f: cut(f / WEIGHTS, 400_000), f"{WEIGHTS} is cut: 400000 of 734064 bytes"),
    (lambda f: (f / WEIGHTS).open("ab").write(b"1"), "has 734065 bytes, its header describes 734064"),
    (lambda f: set_header(f, WTE, dtype="F16"), f"tensor {WTE} has 81920 bytes, F16 [320, 64] needs 40960"),
]
SHARDS = [
    (lambda f: shards(f)[1].unlink(), f"{INDEX}: 1 of 8 shards are not there: model-00002-of"),
    (lambda f: cut(shards(f)[2], -4), "model-00003-of-00008.safetensors is cut", "bytes"),
    (lambda f: cut(shards(f)[2], 0), "model-00003-of-00008.safetensors is cut in its header (0 bytes)"),
    (lambda f: shards(f)[3].write_bytes(POINTER), "model-00004-of-00008", "Git LFS pointer"),
    (lambda f: set_index(f, stray=shards(f)[0].name), "model-00001-of", "does not hold", INDEX, "stray"),
    (lambda f: set_index(f, **{NORM: shards(f)[0].name}), "model-00001-of", "does not hold", NORM),
    (lambda f: set_index(f, **{NORM: None}), f"{INDEX} names no shard for {NORM}"),
    (lambda f: set_index(f, **{NORM: ...}), f"{INDEX} does not say that model-0000", NORM),
    (lambda f: (f / INDEX).write_text("weights"), f"{INDEX}: invalid json"),
    (lambda f: (f / INDEX).write_text("{}"), f"{INDEX} has no weight_map"),
    (lambda f: (f / INDEX).write_bytes(POINTER), f"{INDEX} is a Git LFS pointer"),
]


@pytest.fixture
def refuse(monkeypatch):
    """Both ways in refuse a folder, and transformers has not begun to load."""

    def check(folder, says):
        monkeypatch.setattr(PreTrainedModel, "from_pretrained", lambda *_, **__: pytest.fail("too late"))
        for way in (check_checkpoint, LLaDAForMultiModalGeneration.from_pretrained):
            with pytest.raises(CheckpointError) as error:
                way(folder)
            for words in (str(folder), *says):
                assert words in str(error.value)

    return check


@pytest.mark.parametrize("case", FIELDS, ids=lambda case: "-".join(case[0]))
def test_a_wrong_field_is_refused(folder, case, refuse):
    set_config(folder, **case[0])
    refuse(folder, case[1:])


@pytest.mark.parametrize("case", CONTENTS, ids=lambda case: case[-1])
def test_wrong_content_is_refused(folder, case, refuse):
    name, content, *says = case
    (folder / name).unlink() if content is None else (folder / name).write_bytes(content)
    refuse(folder, says)


@pytest.mark.parametrize("case", TENSORS, ids=lambda case: case[1])
def test_a_wrong_tensor_is_refused(folder, case, refuse):
    set_tensors(folder, **case[0])
    refuse(folder, case[1:])


@pytest.mark.parametrize("kind, case", [("folder", c) for c in OTHERS] + [("sharded", c) for c in SHARDS])
def test_damage_is_refused(kind, case, refuse, request):
    folder = request.getfixturevalue(kind)
    case[0](folder)
    refuse(folder, case[1:])


@pytest.mark.parametrize("name", ["no/such/folder", "/no/such/folder", str(MODEL / WEIGHTS)])
def test_a_name_that_is_nothing_is_refused(name, tmp_path):
    with pytest.raises(CheckpointError, match="neither a folder, nor a hub id"):
        LLaDAForMultiModalGeneration.from_pretrained(name, cache_dir=tmp_path, local_files_only=True)


def test_an_argument_that_contradicts_the_weights_is_refused():
    with pytest.raises(CheckpointError, match=r"30 of 39 tensors.*n_layers=4"):
        LLaDAForMultiModalGeneration.from_pretrained(MODEL, n_layers=4)
    given = LLaDAConfig.from_pretrained(MODEL, d_model=128)
    with pytest.raises(CheckpointError, match=r"tensor .*wte.weight .*d_model=128"):
        LLaDAForMultiModalGeneration.from_pretrained(MODEL, config=given)


# --- what loads


def test_the_auto_classes_load_a_folder():
    assert type(AutoConfig.from_pretrained(MODEL)) is LLaDAConfig
    model = AutoModel.from_pretrained(MODEL)
    assert type(model) is LLaDAForMultiModalGeneration and not model.training
    stored = load_file(MODEL / WEIGHTS)
    assert all(torch.equal(stored[name], value) for name, value in model.state_dict().items())
    assert model.config.rope_theta == 500000.0


@pytest.mark.parametrize("name", ["dtype", "torch_dtype"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_any_dtype(name, dtype):
    model = LLaDAForMultiModalGeneration.from_pretrained(MODEL, **{name: dtype})
    assert {p.dtype for p in model.parameters()} == {dtype}
    assert torch.equal(model.parts.wte.weight, load_file(MODEL / WEIGHTS)[WTE].to(dtype))


@pytest.mark.parametrize("device_map", ["cpu", "auto"])
def test_device_maps(device_map):
    model = AutoModel.from_pretrained(MODEL, device_map=device_map, dtype=torch.bfloat16)
    assert not any(p.is_meta for p in model.parameters()) and model.dtype == torch.bfloat16


@pytest.mark.parametrize("tied", [False, True])
def test_weights_left_on_disk_give_the_same_logits(folder, tmp_path, tied):
    if tied:
        set_config(folder, weight_tying=True)
        set_tensors(folder, **{HEAD: ...})
    ids = torch.arange(20).unsqueeze(0)
    names = ("wte", "blocks", "ln_f") + ("ff_out",) * (not tied)
    places = {f"model.transformer.{name}": "disk" for name in names} | {"model.transformer.ln_f": "cpu"}
    with torch.no_grad():
        plain = AutoModel.from_pretrained(folder)(ids).logits
        model = AutoModel.from_pretrained(folder, device_map=places, offload_folder=tmp_path / "disk")
        assert model.parts.wte.weight.is_meta
        assert torch.equal(model(ids).logits, plain)
        torch.testing.assert_close(model(ids, columns=slice(256, 320)).logits, plain[..., 256:])


def test_a_saved_model_comes_back_to_the_bit(tmp_path):
    for dtype in (torch.float32, torch.bfloat16):
        model = AutoModel.from_pretrained(MODEL, dtype=dtype)
        model.save_pretrained(tmp_path)
        again = AutoModel.from_pretrained(tmp_path)
        assert same(model, again) and again.dtype == dtype
        assert again.config.to_diff_dict() == model.config.to_diff_dict()


@pytest.mark.parametrize(
    "fields",
    [
        {"weight_tying": True},
        {"qk_norm": True, "include_qkv_bias": True, "n_kv_heads": 2},
        {"embedding_size": 400},
        {"eos_token_id": [2, 5], "image_token_offset": 256, "codebook_size": 64},
    ],
)
def test_every_variant_comes_back_to_the_bit(fields, tmp_path):
    config = LLaDAConfig.from_pretrained(MODEL, **fields)
    model = LLaDAForMultiModalGeneration(config)
    model.save_pretrained(tmp_path)
    again = AutoModel.from_pretrained(tmp_path)
    assert same(model, again)
    assert all(getattr(again.config, name) == value for name, value in fields.items())
    assert (HEAD in load_file(tmp_path / WEIGHTS)) is not config.weight_tying


def test_the_defaults_survive_saving(tmp_path):
    LLaDAConfig().save_pretrained(tmp_path)
    with pytest.raises(CheckpointError, match="no weights"):  # which is past every check of the config
        check_checkpoint(tmp_path)


def test_shards(sharded):
    assert len(shards(sharded)) == 8
    assert same(AutoModel.from_pretrained(sharded), AutoModel.from_pretrained(MODEL))
    assert read_tensors(sharded).keys() == load_file(MODEL / WEIGHTS).keys()


def test_a_subfolder_and_a_variant(folder):
    (folder / WEIGHTS).rename(folder / "model.fp16.safetensors")
    model = LLaDAForMultiModalGeneration.from_pretrained(folder.parent, subfolder="model", variant="fp16")
    assert same(model, AutoModel.from_pretrained(MODEL))
    with pytest.raises(CheckpointError, match="no weights"):
        AutoModel.from_pretrained(folder.parent, subfolder="model")


def test_a_config_that_names_remote_code_needs_no_trust(folder):
    auto_map = {"AutoConfig": "configuration_llada.LLaDAConfig", "AutoModel": "modeling_llada.LLaDAModelLM"}
    set_config(folder, architectures=["LLaDAModelLM"], auto_map=auto_map, transformers_version="4.46.3")
    assert type(AutoConfig.from_pretrained(folder)) is LLaDAConfig
    assert same(AutoModel.from_pretrained(folder), AutoModel.from_pretrained(MODEL))
    assert same(LLaDAForMultiModalGeneration.from_pretrained(folder), AutoModel.from_pretrained(MODEL))


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A hub cache in which `someone/tiny` was downloaded, once at the root and once in a subfolder."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    repo = tmp_path / "hub" / "models--someone--tiny"
    for name in ("refs", "blobs", "snapshots"):
        (repo / name).mkdir(parents=True)
    (repo / "refs" / "main").write_text(COMMIT)
    shutil.copytree(MODEL, repo / "snapshots" / COMMIT)
    shutil.copytree(MODEL, repo / "snapshots" / COMMIT / "transformer")
    return tmp_path / "hub"


@pytest.mark.parametrize("loader", [AutoModel, LLaDAForMultiModalGeneration])
@pytest.mark.parametrize(
    "more", [{}, {"revision": "main"}, {"revision": COMMIT}, {"subfolder": "transformer"}]
)
def test_a_downloaded_snapshot(cache, loader, more):
    model = loader.from_pretrained("someone/tiny", cache_dir=cache, local_files_only=True, **more)
    assert same(model, AutoModel.from_pretrained(MODEL))
    assert model.name_or_path == "someone/tiny"


def test_a_broken_snapshot_is_refused(cache):
    cut(cache / "models--someone--tiny" / "snapshots" / COMMIT / WEIGHTS, 1000)
    with pytest.raises(CheckpointError, match=f"{COMMIT}.*{WEIGHTS} is cut"):
        LLaDAForMultiModalGeneration.from_pretrained("someone/tiny", cache_dir=cache, local_files_only=True)
    with pytest.raises(CheckpointError, match="could not get 'someone/tiny' from the hub"):
        LLaDAForMultiModalGeneration.from_pretrained(
            "someone/tiny", cache_dir=cache, local_files_only=True, revision="v2"
        )


def test_a_quantised_checkpoint_is_only_checked_for_damage(folder):
    set_config(folder, quantization_config={"quant_method": "bitsandbytes", "load_in_4bit": True})
    set_tensors(folder, **{WTE: ..., "wte.absmax": torch.zeros(3)})
    check_checkpoint(folder)
    cut(folder / WEIGHTS, -1)
    with pytest.raises(CheckpointError, match="is cut"):
        check_checkpoint(folder)


def test_the_header_is_what_safetensors_reads():
    stored = load_file(MODEL / WEIGHTS)
    found = read_header(MODEL / WEIGHTS)
    assert {name: tuple(value.shape) for name, value in stored.items()} == {
        k: v.shape for k, v in found.items()
    }
    assert all(found[name].size == value.nbytes for name, value in stored.items())
