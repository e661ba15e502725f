"""GenEval's folder layout for models of real pictures, and the CLIP score of what is in it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import torch
from PIL import Image

from dimoo import DiMOOPipeline


def read_prompts(path: Path) -> list[dict]:
    """The records of a GenEval metadata file. ValueError with the line number for one without a prompt."""
    records = []
    for number, line in enumerate(path.read_text(encoding="utf-8-sig").splitlines(), 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except json.JSONDecodeError as error:
            raise ValueError(f"{path}, line {number}: not JSON ({error.msg})") from None
        if not isinstance(record, dict) or not isinstance(record.get("prompt"), str):
            raise ValueError(f'{path}, line {number}: expected an object with a "prompt"')
        records.append(record)
    if not records:
        raise ValueError(f"{path} has no prompts")
    return records


def draw_folder(
    pipeline: DiMOOPipeline, records: list[dict], folder: Path, samples: int = 4, seed: int = 0, batch: int = 8,
    log: Callable[[str], None] = print,
) -> None:  # fmt: skip
    """Write NNNNN/metadata.jsonl and NNNNN/samples/SSSS.png for every record; pictures that are there stay.

    Picture s of prompt n has seed `seed + s` and index n, so it does not depend on the batch.
    """
    for number, record in enumerate(records):
        place = folder / f"{number:05d}"
        (place / "samples").mkdir(parents=True, exist_ok=True)
        (place / "metadata.jsonl").write_text(json.dumps(record) + "\n")
    for sample in range(samples):
        for start in range(0, len(records), batch):
            chunk = range(start, min(start + batch, len(records)))
            paths = [folder / f"{number:05d}" / "samples" / f"{sample:04d}.png" for number in chunk]
            if all(path.exists() for path in paths):
                continue
            prompts = [records[number]["prompt"] for number in chunk]
            made = pipeline.generate(prompts, seed=seed + sample, index=start).images
            for path, image in zip(paths, made, strict=True):
                aside = path.with_suffix(".part")
                image.save(aside, format="PNG")
                aside.replace(path)
        log(f"sample {sample + 1} of {samples}: {len(records)} prompts")


def clip_score(folder: Path, weights: Path, log: Callable[[str], None] = print) -> float:
    """100 x mean cosine of picture and prompt under a local open_clip ViT-B-32 (Hessel et al. 2021, without the 2.5).

    Raises ValueError when open_clip is missing or `weights` is no file.
    """
    try:
        import open_clip
    except ImportError:
        raise ValueError("the CLIP score needs open_clip: pip install 'dimoo[eval]'") from None
    if not weights.is_file():
        raise ValueError(f"no CLIP weights at {weights}")
    model, _, prepare = open_clip.create_model_and_transforms("ViT-B-32", pretrained=str(weights))
    tokenize, cosines = open_clip.get_tokenizer("ViT-B-32"), []
    with torch.inference_mode():
        for place in sorted(p for p in folder.iterdir() if (p / "metadata.jsonl").exists()):
            prompt = json.loads((place / "metadata.jsonl").read_text())["prompt"]
            pictures = torch.stack([prepare(Image.open(p)) for p in sorted((place / "samples").glob("*.png"))])
            seen, said = model.encode_image(pictures), model.encode_text(tokenize([prompt]))
            cosines += torch.cosine_similarity(seen, said).tolist()
    score = 100 * sum(cosines) / len(cosines)
    log(f"CLIP score {score:.2f} over {len(cosines)} pictures")
    return score
