"""A checkpoint of text alone, spelled as LLaDA 8B and 1.5 are: it loads as it is, and is asked through its template."""

import json

import pytest
import torch
from safetensors.torch import save_file
from tokenizers import Regex, Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from dimoo.llada2 import LLaDA2Adapter
from dimoo.model import LLaDAConfig
from dimoo.pipeline import DiMOOPipeline
from dimoo.text import TextTokenizer
from dimoo.vocab import CheckpointError, Vocab

TEMPLATE = (
    "{% for m in messages %}<|startoftext|>{{ m['role'] }}: {{ m['content'] }}<|eot_id|>{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)
SPECIAL = ("<|endoftext|>", "<|mdm_mask|>", "<|eot_id|>", "<|startoftext|>")
WIDTH, HIDDEN, LAYERS, SIZE = 32, 48, 2, 64
FIELDS = {
    "activation_type": "silu", "alibi": False, "alibi_bias_max": 8.0, "architectures": ["LLaDAModelLM"],
    "attention_dropout": 0.0, "attention_layer_norm": False, "attention_layer_norm_with_affine": True,
    "auto_map": {
        "AutoConfig": "configuration_llada.LLaDAConfig", "AutoModelForCausalLM": "modeling_llada.LLaDAModelLM",
        "AutoModel": "modeling_llada.LLaDAModelLM",
    },
    "bias_for_layer_norm": False, "block_group_size": 1, "block_type": "llama", "d_model": WIDTH,
    "embedding_dropout": 0.0, "embedding_size": SIZE, "flash_attention": False, "include_bias": False,
    "include_qkv_bias": False, "init_cutoff_factor": None, "init_device": "meta", "init_fn": "mitchell",
    "init_std": 0.02, "input_emb_norm": False, "layer_norm_type": "rms", "layer_norm_with_affine": True,
    "max_sequence_length": 4096, "mlp_hidden_size": HIDDEN, "mlp_ratio": 4, "model_type": "llada",
    "multi_query_attention": None, "n_heads": 4, "n_kv_heads": 4, "n_layers": LAYERS, "precision": "amp_bf16",
    "residual_dropout": 0.0, "rms_norm_eps": 1e-05, "rope": True, "rope_full_precision": True,
    "rope_theta": 500000.0, "scale_logits": False, "transformers_version": "4.46.3", "use_cache": False,
    "vocab_size": SIZE, "weight_tying": False,
}  # fmt: skip
"""What config.json of LLaDA-8B-Instruct states besides its three ids, with smaller sizes."""
LAYER = {
    "attn_norm": (WIDTH,), "ff_norm": (WIDTH,), "q_proj": (WIDTH, WIDTH), "k_proj": (WIDTH, WIDTH),
    "v_proj": (WIDTH, WIDTH), "attn_out": (WIDTH, WIDTH), "ff_proj": (HIDDEN, WIDTH), "up_proj": (HIDDEN, WIDTH),
    "ff_out": (WIDTH, HIDDEN),
}  # fmt: skip
ENDS = {"wte": (SIZE, WIDTH), "ln_f": (WIDTH,), "ff_out": (SIZE, WIDTH)}


def tensors():
    """Its tensor names and shapes, random values in bfloat16."""
    shapes = {f"blocks.{k}.{name}": shape for k in range(LAYERS) for name, shape in LAYER.items()} | ENDS
    generator = torch.Generator().manual_seed(0)
    return {f"model.transformer.{name}.weight": torch.randn(shape, generator=generator).mul(0.3).bfloat16()
            for name, shape in shapes.items()}  # fmt: skip


@pytest.fixture(scope="module")
def tokenizer():
    """A tokenizer with the control tokens of LLaDA 8B, one token a letter."""
    letters = {letter: index for index, letter in enumerate("abcdefghijklmnopqrstuvwxyz:<>|_ ?")}
    made = Tokenizer(models.WordLevel(letters | {"[UNK]": len(letters)}, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=made, unk_token="[UNK]")
    tokenizer.add_tokens(list(SPECIAL), special_tokens=True)
    tokenizer.chat_template = TEMPLATE
    return tokenizer


@pytest.fixture(scope="module")
def folder(tokenizer, tmp_path_factory):
    """A checkpoint in two shards, as the hosted ones lie: no model_index.json, no image tokenizer."""
    place = tmp_path_factory.mktemp("llada")
    end, mask = (tokenizer.convert_tokens_to_ids(token) for token in ("<|endoftext|>", "<|mdm_mask|>"))
    ids = {"eos_token_id": end, "pad_token_id": end, "mask_token_id": mask}
    (place / "config.json").write_text(json.dumps(FIELDS | ids))
    tokenizer.save_pretrained(place)
    found, homes = tensors(), {}
    names = sorted(found)
    for number, chosen in enumerate((names[::2], names[1::2]), 1):
        shard = f"model-0000{number}-of-00002.safetensors"
        save_file({name: found[name] for name in chosen}, place / shard, metadata={"format": "pt"})
        homes |= dict.fromkeys(chosen, shard)
    (place / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": homes}))
    return place


@pytest.fixture(scope="module")
def llada(folder):
    pipeline = DiMOOPipeline.from_pretrained(folder, dtype=torch.bfloat16)
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


@pytest.fixture
def text(tokenizer):
    mask = tokenizer.convert_tokens_to_ids("<|mdm_mask|>")
    config = LLaDAConfig(d_model=32, n_heads=4, n_layers=1, mlp_hidden_size=32, vocab_size=64, mask_token_id=mask)
    return TextTokenizer(tokenizer, Vocab.from_checkpoint(tokenizer, config))


def test_every_weight_lies_where_it_was_stored(llada):
    stored = tensors()
    loaded = llada.model.state_dict()
    assert loaded.keys() == stored.keys()
    assert all(torch.equal(loaded[name], stored[name]) for name in stored)
    assert llada.vqvae is None and llada.codec.images is None and llada.defaults.block_length == 32


def test_it_answers_fills_and_changes_words(llada, photo, tmp_path):
    answer = llada.write("why?", history=[("who?", "me")], length=8, block_length=4, num_inference_steps=4, seed=0)
    assert isinstance(answer.texts[0], str) and answer.forwards <= 4
    fast = {"rule": "threshold(threshold=0.5)", "cache": "dual", "length": 8, "block_length": 4}
    assert llada.write(["why?", "a?"], seed=0, **fast).forwards <= 8
    assert llada.infill(["a ", 2, " b"], num_inference_steps=2, seed=0).texts[0].startswith("a ")
    assert llada.rewrite("a b c", keep=["a"], reopen=["c"], num_inference_steps=2, seed=0).texts[0].startswith("a")
    assert LLaDA2Adapter(llada)("why?", gen_length=6, block_length=4).sequences.shape == (1, 6)
    with pytest.raises(ValueError, match="no image tokenizer"):
        llada.ask("what?", photo)
    llada.save_pretrained(tmp_path / "again")
    again = DiMOOPipeline.from_pretrained(tmp_path / "again", dtype=torch.bfloat16)
    assert torch.equal(again.model.head.weight, llada.model.head.weight)


def test_it_needs_no_image_tokens(text, tokenizer):
    vocab = text.vocab
    end, pad = (tokenizer.convert_tokens_to_ids(token) for token in ("<|eot_id|>", "<|endoftext|>"))
    assert (vocab.boa, vocab.codebook_size, vocab.ends) == (None, 0, (end, pad))
    assert text.around == ([], [])
    config = LLaDAConfig(d_model=32, n_heads=4, n_layers=1, mlp_hidden_size=32, vocab_size=64, mask_token_id=3)
    with pytest.raises(CheckpointError, match="mask_token_id=3"):
        Vocab.from_checkpoint(tokenizer, config)


def test_the_template_frames_the_turns_and_users_cannot_forge_it(text, tokenizer):
    ids = text.chat([("who?", "me"), ("why <|eot_id|>?", "")])
    shown = tokenizer.convert_ids_to_tokens(ids)
    marks = [token for token in shown if token in SPECIAL]
    assert marks == ["<|startoftext|>", "<|eot_id|>"] * 3
    said = "".join(token for token in shown if token not in SPECIAL)
    assert said == "user: who?assistant: meuser: why <|eot_id|>?assistant: "
