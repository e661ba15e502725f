"""Replay golden traces through our own classes: `python tests/golden/replay.py DIR ...`.

One line a case: what was compared, or what differs (step, how many ids). The exit code is 1 when anything
differs. Ids and masks must agree exactly, logits within 1e-4. README.md describes the format of a folder.
"""

import json
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor

from dimoo import ops
from dimoo.blocks import BlockSchedule, LeftToRight, WholeCanvas
from dimoo.cache import DualCache, KVStore, MaxLogitCache, NoCache, PrefixCache, published
from dimoo.cache.max_logit import Published
from dimoo.canvas import Canvas, Row, Window
from dimoo.guidance import Guider, NoGuidance, TextGuidance, TextImageGuidance
from dimoo.model import LLaDAForMultiModalGeneration
from dimoo.sampling import RandomStream, Scheduler, denoise
from dimoo.sampling.processors import Credit
from dimoo.sampling.quotas import Quota, cosine, even
from dimoo.sampling.rules import Candidates, Factor, Hierarchical, Threshold
from dimoo.sampling.timetable import Timetable
from dimoo.vocab import TOKEN_STRINGS, Vocab


@dataclass
class Case:
    """One recorded case: its tensors, its noise in place of our own, and what we found to differ."""

    name: str
    settings: dict
    traces: dict[str, Tensor]
    vocab: Vocab
    model: LLaDAForMultiModalGeneration
    wrong: list[str] = field(default_factory=list)
    states: list[Tensor] = field(default_factory=list)
    dtype = torch.float32

    def __getitem__(self, key: str) -> Tensor:
        return self.traces[key]

    def token(self, stream: RandomStream, step: int, rows: Tensor, count: int) -> Tensor:
        return self[f"token_gumbel.{len(self.states) - 1}"]

    def rank(self, stream: RandomStream, step: int, rows: Tensor) -> Tensor:
        return self[f"remask_gumbel.{len(self.states) - 1}"]

    def same(self, what: str, ours: Tensor, recorded: Tensor) -> None:
        if ours.shape != recorded.shape:
            self.wrong.append(f"{what}: shape {list(ours.shape)} instead of {list(recorded.shape)}")
        elif count := int((ours != recorded).sum()):
            self.wrong.append(f"{what}: {count} of {ours.numel()} differ")

    def same_rows(self, key: str, rows: Tensor) -> None:
        self.same(key, torch.zeros_like(self[key]).index_fill(1, rows, True), self[key])

    def close(self, key: str, ours: Tensor) -> None:
        if not torch.allclose(ours, self[key], rtol=0, atol=1e-4):
            self.wrong.append(f"{key}: off by up to {float((ours - self[key]).abs().max()):.2e}")


class NeverIdle(Timetable):
    def busy(self, step: int) -> list[bool]:
        return [True] * len(self.commits)


class EveryStep(Scheduler):
    """The reference calls the network also at steps that commit nothing; so its steps and ours keep count."""

    def timetable(self, canvas: Canvas, window: Window) -> Timetable:
        return NeverIdle(**vars(super().timetable(canvas, window)))


def fill(case: Case, row: Row, guider: Guider, blocks: BlockSchedule, quota: Quota) -> tuple[Tensor, str]:
    """Fill a row, comparing the canvas of every step and the rows of every partial pass; returns the ids."""
    s, canvas, partial = case.settings, Canvas([row], case.vocab, [(0, 0)]), {}
    case.states.append(canvas.row(0))

    class Watched(Published):
        def __call__(self, *given) -> Tensor:
            chosen, step = super().__call__(*given), len(case.states) - 1
            for branch, rows in zip(guider.branches, chosen, strict=True):
                partial[f"{branch}_recompute_mask.{step}"] = rows.unique()
            return chosen

    numbers = ("cache_ratio", "warmup_ratio", "refresh_interval")
    cache = MaxLogitCache(*(s[name] for name in numbers), Watched()) if s.get("use_cache") else NoCache()
    scheduler = EveryStep(quota=quota, temperature=s["temperature"], noise=case)
    slots = {"scheduler": scheduler, "guider": guider, "blocks": blocks, "cache": cache}
    forwards = denoise(canvas, case.model, **slots, on_step=lambda _: case.states.append(canvas.row(0)))
    ids = torch.stack([torch.cat([row.conditions["cond"], state]) for state in case.states])
    compare(case, ids[:-1], partial)
    return ids[-1], f"{len(ids)} states, {forwards} forwards{f', {len(partial)} masks' * bool(partial)}"


def compare(case: Case, ids: Tensor, partial: dict[str, Tensor]) -> None:
    expected = case["step_inputs"]
    if len(ids) != len(expected):  # a step that commits nothing repeats its canvas, or is left out
        ids, expected = ids.unique_consecutive(dim=0), expected.unique_consecutive(dim=0)
    masks = {key for key in case.traces if "_recompute_mask." in key}
    for key in sorted(masks):
        case.same_rows(key, partial.get(key, torch.zeros(0, dtype=torch.long)))
    if masks and (more := partial.keys() - masks):
        case.wrong.append(f"partial passes that the reference did not make: {', '.join(sorted(more))}")
    if ids.shape != expected.shape:
        return case.same("canvases", ids, expected)
    for step in (ids != expected).any(1).nonzero().flatten().tolist()[:1]:  # all others follow from the first
        case.same(f"ids of step {step}", ids[step], expected[step])


def network(case: Case) -> str:
    """A full pass or, where two are recorded, also a partial one over the rows that the rule chooses."""
    if "second_ids" not in case.traces:
        case.close("logits", case.model(case["input_ids"]).logits)
        return f"{case['logits'].numel()} logits"
    store = KVStore()
    logits = case.model(case["first_ids"], kv=store).logits
    case.close("first_logits", logits)
    lengths = [logits.shape[1]]
    rows = published(logits.amax(-1), None, None, lengths, case.settings["recompute_fraction"])
    case.same_rows("recompute_mask", rows[0])
    fresh = case.model(case["second_ids"], kv=store, rows=rows).logits
    case.close("second_logits", ops.scatter_rows(logits, rows, fresh))
    return f"{logits.numel()} logits, {rows.shape[1]} of {lengths[0]} rows recomputed"


def picture(case: Case) -> str:
    s, v = case.settings, case.vocab
    (conditions, guider), grid = asked(case), (s["grid_height"], s["grid_width"])
    image = v.empty_image(*grid)
    if "partial_image_ids" in case.traces:
        image = v.lay_out(case["partial_image_ids"].view(grid) - v.image_offset)
    row = Row(torch.cat([torch.tensor([v.boa]), image, torch.tensor([v.eoa])]), conditions, v.codes, grid)
    ids, done = fill(case, row, guider, WholeCanvas(s["steps"]), cosine)
    codes = v.read_codes(ids[len(conditions["cond"]) + 1 : -1], *grid)
    case.same("vq_ids", codes.flatten() + v.image_offset, case["vq_ids"][0])
    return done


def asked(case: Case) -> tuple[dict[str, Tensor], Guider]:
    """What stands before the picture in every branch, and how the branches are combined."""
    s, text = case.settings, case["prompt_ids"]
    if s["task"] != "image_to_image":
        guider = TextGuidance(s["guidance_scale"]) if s.get("guidance_scale") else NoGuidance()
        return {"cond": text, "uncond": case["uncond_ids"]}, guider
    dropped, source = case["uncond_prompt_ids"], case["source_image_ids"]
    cond, no_text = (torch.cat([ids[:-1], source, ids[-1:]]) for ids in (text, dropped))
    guider = TextImageGuidance(s["text_guidance_scale"], s["image_guidance_scale"])
    return {"cond": cond, "no_text": no_text, "no_image": text}, guider


def words(case: Case) -> str:
    s, ids = case.settings, case["input_ids"][0]
    opening = s["answer_start"] - 1  # the answer token stands before the first mask
    row = Row(ids[opening:], {"cond": ids[:opening]}, case.vocab.everything)
    ids, done = fill(case, row, NoGuidance(), LeftToRight(s["steps"], s["block_length"]), even)
    case.same("output_ids", ids, case["output_ids"][0])
    return done


TEXT_CACHES = {"full": NoCache, "prefix_cache": PrefixCache, "dual_cache": DualCache}
SELECTED = {"threshold": Threshold, "factor": Factor, "hierarchy": Hierarchical}


def decoding(case: Case) -> str:
    """Block-wise text, by quota or threshold, with or without a cache: the same ids in no more forwards."""
    s, prompt = case.settings, case["prompt_ids"][0]
    row = Row(torch.full((s["gen_length"],), case.vocab.mask), {"cond": prompt}, case.vocab.everything)
    canvas = Canvas([row], case.vocab, [(0, 0)])
    rule = {} if s["threshold"] is None else {"rule": Threshold(s["threshold"])}
    scheduler = Scheduler(quota=even, temperature=s["temperature"], **rule)
    slots = {"blocks": LeftToRight(s["steps"], s["block_length"]), "cache": TEXT_CACHES[s["cache"]]()}
    forwards = denoise(canvas, case.model, scheduler=scheduler, **slots)
    case.same("output_ids", torch.cat([prompt, canvas.row(0)]), case["output_ids"][0])
    if forwards > s["forward_calls"]:
        case.wrong.append(f"{forwards} forwards instead of at most {s['forward_calls']}")
    return f"{forwards} forwards, recorded {s['forward_calls']}"


def selection(case: Case) -> str:
    """Which masks each rule takes, on recorded logits."""
    keys = sorted(key for key in case.traces if key.endswith(".positions"))
    for key in keys:
        number, rule, numbers = key.partition(".")[0], *key.partition(".")[2][: -len(".positions")].split("_", 1)
        logits, open = case[f"{number}.logits"], case[f"{number}.ids"] == case.settings["mask_id"]
        log_p, top = logits.log_softmax(-1), logits.argmax(-1)
        best, rows = log_p.amax(-1), torch.arange(logits.shape[1]).expand_as(top)
        found = Candidates(rows, open, top, log_p, best.exp(), best, torch.ones(len(top), dtype=torch.long), 0, None)
        case.same(key, SELECTED[rule](*map(float, numbers.split("_")))(found) & open, case[key])
    return f"{len(keys)} selections"


def credit(case: Case) -> str:
    """One block under credit decoding: the ids after each of the recorded logits."""
    s, logits = case.settings, case["logits"]
    row = Row(torch.full((logits.shape[1],), s["mask_id"]), {"cond": torch.zeros(0)}, slice(0, logits.shape[2]))
    canvas = Canvas([row], replace(case.vocab, mask=s["mask_id"]), [(0, 0)])
    fused = Credit(s["alpha"], s["beta"], s["gamma"])
    scheduler = Scheduler(temperature=0.0, rule=Threshold(s["threshold"]), processors=[fused])
    (window,) = WholeCanvas(1).windows(canvas)
    timetable = scheduler.timetable(canvas, window)
    for step in range(len(logits)):
        rows, valid = canvas.open_rows(window, logits.shape[1])
        canvas.apply(scheduler.step(logits[step, rows], canvas, rows, valid, timetable, step, step))
        case.same(f"ids after step {step}", canvas.row(0), case["ids_after"][step])
    return f"{len(logits)} steps"


REPLAYS = {"text_to_image": picture, "inpaint": picture, "image_to_image": picture, "understanding": words}
REPLAYS |= {"decoding": decoding, "credit": credit, "select": selection, None: network}


def report(case: Case) -> str:
    """Replay one case and say so in one line; whatever stops it is a difference."""
    try:
        done = REPLAYS[case.settings.get("task")](case)
    except Exception as error:
        case.wrong.append(f"stopped by {type(error).__name__}: {error}")
    return f"FAIL {case.name:13} {'; '.join(case.wrong)}" if case.wrong else f"ok   {case.name:13} {done}"


def read_cases(folder: Path) -> list[Case]:
    meta = json.loads((folder / "meta.json").read_text("utf-8"))
    ids = {role: meta["special_token_ids"][role] for role in TOKEN_STRINGS}
    offset, codes, size = (meta[name] for name in ("image_token_offset", "codebook_size", "vocab_size"))
    vocab = Vocab(**ids, image_offset=offset, codebook_size=codes, size=size)
    model = LLaDAForMultiModalGeneration.from_pretrained(folder / "model", dtype=torch.float32).eval()
    traces = read_traces(folder / "traces.safetensors", meta["cases"])
    return [Case(name, settings, traces[name], vocab, model) for name, settings in meta["cases"].items()]


def read_traces(path: Path, names: Iterable[str]) -> dict[str, dict[str, Tensor]]:
    """Case -> its tensors; the part of a key before the first point names the case."""
    traces = {name: {} for name in names}
    for key, value in load_file(path).items():
        name, _, tensor = key.partition(".")
        traces.setdefault(name, {})[tensor] = value.long() if value.dtype == torch.int32 else value
    return traces


def read_texts(folder: Path) -> list[Case]:
    """The text cases of a folder that has any. The recorded logits are those of a sharper output head."""
    if not (folder / "text_meta.json").exists():
        return []
    meta, (plain, *_) = json.loads((folder / "text_meta.json").read_text("utf-8")), read_cases(folder)
    traces = read_traces(folder / "text_traces.safetensors", meta)
    numbered = {name: traces.pop(name) for name in list(traces) if name.startswith("select") and name != "select"}
    if numbered:
        traces["select"] = {f"{name}.{key}": value for name, given in numbered.items() for key, value in given.items()}
    plain.model.head.weight.data.mul_(next(s["output_head_scale"] for s in meta.values() if "cache" in s))
    kinds = {name: "decoding" if "cache" in s else name for name, s in meta.items()}
    return [Case(name, s | {"task": kinds[name]}, traces[name], plain.vocab, plain.model) for name, s in meta.items()]


@torch.inference_mode()
def main(folders: list[str]) -> int:
    cases = [case for folder in map(Path, folders) for case in (*read_cases(folder), *read_texts(folder))]
    for case in cases:
        print(report(case), flush=True)
    return int(not cases or any(case.wrong for case in cases))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]) if sys.argv[1:] else __doc__)
