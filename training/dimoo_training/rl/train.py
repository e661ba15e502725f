"""Self-GRPO and its relatives, top to bottom: draw requests -> roll out groups -> reward -> update -> save.

One loop for all rules. In Self-GRPO the model draws, questions its own drawing and learns from both: every picture
of a group answers the same questions, the share of right answers is its reward, and pictures and answers are learned
with the softmax of the rewards as weights. The report (Lumina-DiMOO 2025) released no code and no G, N, alpha, beta.

Kept from GRPO (Shao et al. 2024):
- groups of samples of one prompt, compared only with each other;
- KL to the model at the start, by the k3 estimator, on exactly the tokens that are learned.

Removed by Self-GRPO, and present here as the rule `grpo`:
- negative advantages, the ratio and its clipping: a softmax-weighted likelihood is on-policy with one update a round;
- the old policy: its log-probabilities are stored by the rollout, and are only checked against.

Ours, not the report's:
- gradients at a few early steps only (the report has it, which steps it does not say);
- answers are learned only where the model was right by itself about a picture of the better half (`objectives.gate`);
- the reward comes from the model as it was at the start (`judge="frozen"`): a judge that learns from its own praise
  drifts, the reward rises and the pictures do not;
- questions about what must be absent and exact counts; none that can be answered without the picture.

The oracle's opinion of every round is logged and never used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import gather_object
from torch import nn

from dimoo.pipeline import DiMOOPipeline
from dimoo.resolve import resolve
from dimoo.settings import Settings
from dimoo_training.adapters import adapt
from dimoo_training.optimiser import warmup_then_decay
from dimoo_training.rl import journal as j
from dimoo_training.rl.adapters import Adam, PartNorms, Trained, WithoutAdapters, frozen_copy
from dimoo_training.rl.context import Context, Piece, Pieces, Round
from dimoo_training.rl.judge import Judge
from dimoo_training.rl.placement import replicated, sharded
from dimoo_training.rl.recipes import RLRecipe
from dimoo_training.rl.rewards import REWARDS, Samples, total
from dimoo_training.rl.rollout import check, roll_out
from dimoo_training.rl.state import AlignmentRun, Saver, export
from dimoo_training.rl.subjects import SUBJECTS, Request, Subject, as_tensor, grouped
from dimoo_training.rl.updates import RULES
from dimoo_training.sft import Clock as Due
from dimoo_training.sft import NotFinite


def align(
    pipeline: DiMOOPipeline, recipe: RLRecipe, out: Path, supervised=None, log: Callable[[str], None] = print
) -> DiMOOPipeline:
    """Run `recipe` on the pipeline's model, from the state in `out` on when there is one; returns it, trained.

    `supervised(rng) -> batch` gives batches to rehearse with. Writes the state and out/checkpoint every few minutes,
    out/log.jsonl, out/tensorboard and out/sheets. Works in one process or under `accelerate launch`.

    Raises ValueError for a recipe that cannot be, NotFinite for a loss that is no number.
    """
    out.mkdir(parents=True, exist_ok=True)
    accelerator = Accelerator(mixed_precision=recipe.precision, cpu=not torch.cuda.is_available())
    main, rank, count = accelerator.is_main_process, accelerator.process_index, accelerator.num_processes
    subject: Subject = made(resolve(recipe.subject, SUBJECTS, "subject"))
    policy = Policy.of(pipeline, recipe, subject, accelerator.device)
    place = sharded if recipe.shards and count > 1 else replicated
    placed = place(pipeline.model, policy.reference, recipe, accelerator)
    most = partial(largest, accelerator) if count > 1 else int
    context = Context(recipe, placed.learner, pipeline.model, policy.reference, subject.part, supervised, most)
    rule = resolve(recipe.rule, RULES, "rule")(context)
    trained = Trained(pipeline.model)
    run = placed.Run(trained, Adam(trained, recipe.lr), recipe.ema, subject.kinds)
    run.restore(out)
    saver = Saver(run, out, placed.weights, lambda weights: export(pipeline, recipe.lora, weights, out / "checkpoint"))
    due = Due(recipe.save_every_seconds, accelerator)
    norms = PartNorms(run.optimiser.parameters) if recipe.norms_by_part else None
    journal = j.Journal(out, run.step, recipe.iterations, log) if main else None
    clock = j.Clock()
    while run.step < recipe.iterations:
        rng = np.random.default_rng([recipe.seed, run.step, rank])              # of this round: resuming is a counter
        with placed.gathered(), accelerator.autocast():
            with clock("rollout"):
                requests = subject.draw(recipe.prompts, run.curriculum.mix(), policy.judge, pipeline.defaults, rng)
                rollout = policy.roll_out(requests, (run.step * count + rank) * recipe.prompts * recipe.group)
            with clock("reward"):
                samples = Samples.of(rollout, requests, pipeline.codec, policy.judge, recipe.options)
                rewards, parts = total(samples, recipe.rewards)
                measured = as_tensor(REWARDS[subject.measure](samples)) if subject.measure else None
                if recipe.shuffled:
                    rewards = rewards[torch.from_numpy(rng.permutation(len(rewards)))]
            with clock("update"):
                round = Round(rollout, samples, grouped(rewards, recipe.group), rng)
                steps = list(rule.steps(round))                 # what is read from the policy as it sampled
        numbers = j.reward_numbers(round.rewards, parts, measured, subject.measure)
        with clock("update"):
            norm = update(steps, round, run, recipe, accelerator, norms)
        numbers |= j.entropy_numbers(rollout) | context.ledger.take() | {"grad_norm": norm} | clock.take()
        numbers |= {f"grad_norm/{part}": x for part, x in norms.take().items()} if norms else {}
        run.hear([request.kind for request in samples.requests], rewards.tolist())
        run.step += 1
        run.ema.update(trained, run.step)
        everyone = gather_object([numbers])
        if main:
            journal.write(run.step, j.mean_over_processes(everyone))
            if run.step % recipe.sheet_every == 0:
                j.save_sheet(out, run.step, samples, subject.part, rewards, measured)
        if due.rings():
            saver.save()
    saver.save()
    if main:
        journal.close()
    pipeline.model.eval()
    return pipeline


def update(
    steps: list[Pieces], round: Round, run: AlignmentRun, recipe: RLRecipe, accelerator: Accelerator,
    norms: PartNorms | None,
) -> float:  # fmt: skip
    """The optimiser steps of one round; returns the largest gradient norm. Raises NotFinite before a bad step."""
    scale, largest = warmup_then_decay(run.step / recipe.iterations, recipe.warmup, decay=0.2), 0.0
    for pieces in steps:
        for piece in within(accelerator.autocast, pieces):
            if not torch.isfinite(piece.loss):
                prompts = [request.truth for request in round.samples.requests[:: recipe.group]]
                raise NotFinite(
                    f"iteration {run.step}, {piece.part}: loss {piece.loss.item()}; requests: {prompts}; "
                    f"ids of the batch: {piece.ids.tolist()}"
                )
            before = norms.before() if norms else None
            accelerator.backward(piece.loss)
            if norms:
                norms.hear(piece.part, before)
        largest = max(largest, run.optimiser.step(scale, recipe.clip_norm))
    return largest


def within(context: Callable[[], AbstractContextManager], items: Iterator[Piece]) -> Iterator[Piece]:
    """The items, each made inside a context of its own: autocast forgets its casts before the weights change."""
    while True:
        with context():
            item = next(items, None)
        if item is None:
            return
        yield item


def largest(accelerator: Accelerator, number: int) -> int:
    """Of a number over all processes."""
    return int(accelerator.gather(torch.tensor([number], device=accelerator.device)).max())


@dataclass
class Policy:
    """The model that is trained, as it was at the start, and who judges."""

    pipeline: DiMOOPipeline
    recipe: RLRecipe
    settings: Settings
    reference: nn.Module
    judge: Judge

    @classmethod
    def of(cls, pipeline: DiMOOPipeline, recipe: RLRecipe, subject: Subject, device: torch.device) -> Policy:
        torch.manual_seed(recipe.seed)                                          # of new adapters
        model = pipeline.model.to(device).train()
        adapted = adapt(model, recipe.lora) if recipe.lora else None
        reference = WithoutAdapters(adapted) if adapted else frozen_copy(model)
        if recipe.checkpointing:
            model.gradient_checkpointing_enable({"use_reentrant": False})
        judges = {"frozen": reference, "live": model}
        judge = Judge(resolve(recipe.judge, judges, "judge"), pipeline.codec, recipe.ask)
        kinds = {"image": "draw", "text": "text"}
        settings = Settings(**recipe.settings).filled(pipeline.defaults, kinds[subject.part])
        check(settings)
        return cls(pipeline, recipe, settings, reference, judge)

    def roll_out(self, requests: list[Request], index: int):
        """Groups of answers to the requests, as one batch."""
        tasks = [request.task for request in requests]
        return roll_out(
            self.pipeline.model, self.pipeline.codec, tasks, self.recipe.group, self.settings, self.recipe.seed, index
        )


def made(variant):
    """A subject as it is, or built by its function."""
    return variant() if callable(variant) else variant
