"""Ids come from the checkpoint's own fields, and a checkpoint that contradicts itself is refused by name."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from dimoo.vocab import TOKEN_STRINGS, CheckpointError, Vocab

HOSTED_IDS = json.loads((Path(__file__).parent / "golden" / "format.json").read_text())["special_token_ids"]
NAMES = {"boa": "answer_start", "eoa": "answer_end"}  # what format.json calls our roles
PAD = 126339
CODES = 8192


class Tokenizer:
    """The hosted tokenizer as far as a vocabulary is concerned: reserved tokens serve as newline and padding."""

    def __init__(self, **changed):
        ids = {role: HOSTED_IDS.get(NAMES.get(role, role), PAD) for role in TOKEN_STRINGS} | changed
        self.known = {f"word{k}": k for k in range(100)}
        self.known |= {TOKEN_STRINGS[role][-1]: index for role, index in ids.items() if index is not None}

    def get_vocab(self):
        return dict(self.known)


def config(**changed):
    fields = {"mask_token_id": HOSTED_IDS["mask"], "vocab_size": 134548, "codebook_size": None}
    return SimpleNamespace(**fields | {"image_token_offset": None} | changed)


def test_the_hosted_checkpoint():
    vocab = Vocab.from_checkpoint(Tokenizer(), config(), CODES)
    for role in set(TOKEN_STRINGS) - {"pad"}:
        assert getattr(vocab, role) == HOSTED_IDS[NAMES.get(role, role)]
    assert (vocab.pad, vocab.image_offset, vocab.codebook_size) == (PAD, HOSTED_IDS["image_token_offset"], CODES)
    assert vocab.codes == slice(126356, 134548) and vocab.everything == slice(0, 134548)
    assert vocab.ends == (HOSTED_IDS["answer_end"], PAD)


def test_a_hosted_tokenizer_that_lists_the_image_codes_too():
    tokenizer = Tokenizer()
    tokenizer.known |= {f"<code{k}>": 126356 + k for k in range(CODES)}
    assert Vocab.from_checkpoint(tokenizer, config(), CODES).codes == slice(126356, 134548)


def test_our_own_strings_come_first():
    tokenizer = Tokenizer()
    tokenizer.known["<|newline|>"] = 50
    assert Vocab.from_checkpoint(tokenizer, config(), CODES).newline == 50


def test_stated_fields_win_over_guesses():
    vocab = Vocab.from_checkpoint(Tokenizer(), config(image_token_offset=130000, codebook_size=4000))
    assert vocab.codes == slice(130000, 134000)


@pytest.mark.parametrize("role", TOKEN_STRINGS)
def test_a_missing_token_is_named(role):
    with pytest.raises(CheckpointError, match=role) as error:
        Vocab.from_checkpoint(Tokenizer(**{role: None}), config(), CODES)
    assert all(string in str(error.value) for string in TOKEN_STRINGS[role])


CONTRADICTIONS = {
    "mask_token_id": ({"mask_token_id": 5}, CODES, "126336"),
    "codebook_size=8192": ({"codebook_size": CODES}, 4096, "4096"),
    "codebook_size is stated neither": ({}, None, "config.json"),
    "image_token_offset=126356": ({"vocab_size": 134547}, CODES, "vocab_size=134547"),
    "image_token_offset=134548": ({"image_token_offset": 134548}, CODES, "codebook_size=8192"),
    "'boi'": ({"image_token_offset": 126340}, CODES, "126349"),
}


@pytest.mark.parametrize("field", CONTRADICTIONS)
def test_a_contradiction_is_named(field):
    fields, codebook, also = CONTRADICTIONS[field]
    with pytest.raises(CheckpointError, match=field) as error:
        Vocab.from_checkpoint(Tokenizer(), config(**fields), codebook)
    assert also in str(error.value)


def test_the_error_is_a_value_error():
    assert issubclass(CheckpointError, ValueError)


@pytest.mark.parametrize(("role", "index"), [("boa", 40), ("mask", -1), ("pad", 24), ("eoi", 39)])
def test_an_id_outside_the_vocabulary_or_among_the_codes_is_refused(vocab, role, index):
    with pytest.raises(CheckpointError, match=f"'{role}' is {index}"):
        replace(vocab, **{role: index})


def test_the_ids_beside_the_codes_are_free(vocab):
    assert replace(vocab, image_offset=23, boa=39).boa == 39


@pytest.mark.parametrize("grid", [(1, 1), (2, 3), (5, 1)])
def test_an_image_is_laid_out_with_row_ends_and_read_back(vocab, grid):
    codes = torch.arange(grid[0] * grid[1]).view(grid) % vocab.codebook_size
    ids = vocab.lay_out(codes).tolist()
    assert (ids[0], ids[-1]) == (vocab.boi, vocab.eoi)
    rows = [[vocab.image_offset + int(code) for code in row] + [vocab.newline] for row in codes]
    assert ids[1:-1] == [index for row in rows for index in row]
    assert torch.equal(vocab.read_codes(torch.tensor(ids), *grid), codes)


def test_an_unfinished_image_is_not_read(vocab):
    ids = vocab.empty_image(2, 3)
    assert (ids == vocab.mask).sum() == 6
    with pytest.raises(ValueError, match="not finished"):
        vocab.read_codes(ids, 2, 3)
    ids[ids == vocab.mask] = vocab.codes.stop - 1
    assert (vocab.read_codes(ids, 2, 3) == vocab.codebook_size - 1).all()
    ids[1] = vocab.image_offset - 1
    with pytest.raises(ValueError, match="not finished"):
        vocab.read_codes(ids, 2, 3)


def test_the_cells_of_an_unfinished_image(vocab):
    ids = vocab.lay_out(torch.tensor([[0, vocab.mask - vocab.image_offset, 2], [3, 4, 5]]))
    assert vocab.cells(ids, 2, 3).tolist() == [[24, vocab.mask, 26], [27, 28, 29]]
