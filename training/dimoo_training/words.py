"""dimoo-tiny's text tokenizer: byte-level BPE on the world's own language, so any other word still has ids."""

from __future__ import annotations

import numpy as np
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from dimoo.tasks.edit import EDIT_KINDS
from dimoo.text import SYSTEM_PROMPTS, TAGS
from dimoo.vocab import TOKEN_STRINGS
from dimoo_training import world as w
from dimoo_training.puzzles import PUZZLES

SPECIAL = ["<|endoftext|>", *(strings[0] for strings in TOKEN_STRINGS.values()), *TAGS]


def corpus(count: int, seed: int = 0):
    """Captions, questions with answers, edits, references and puzzles of the full world, `count` of each."""
    rng, full = np.random.default_rng(seed), w.WORLDS["full"]
    for _ in range(count):
        for family in w.FAMILIES:
            yield w.sample_caption(full, family, rng).text
        question = w.sample_question(full.sample(rng), rng, full)
        yield from (question.text, question.answer, question.as_choice()[0])
        yield w.sample_edit(full, rng).text
        yield w.REFERENCES["subject"](full, rng).text
        yield from (puzzle.sample(rng, held_out=False).text for puzzle in PUZZLES.values())
    yield from ("0 1 2 3 4 5 6 7 8 9", "yes no true false", "describe the picture", "describe this image")


def build_tokenizer(vocab_size: int = 640, samples: int = 2500) -> PreTrainedTokenizerFast:
    """Train the tokenizer. Digits stay single; fixed instructions are one token each: short prompts."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator(corpus(samples), trainer)
    fixed = dict.fromkeys([*SYSTEM_PROMPTS.values(), *(text for _, text in EDIT_KINDS.values() if text)])
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in fixed])
    tokenizer.add_special_tokens([AddedToken(text, normalized=False) for text in SPECIAL])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<|endoftext|>", pad_token="<|pad|>", mask_token="<|mdm_mask|>"
    )
