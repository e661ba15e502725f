"""`make gpu-check`: everything that only a GPU can tell, in less than eight minutes, start-up included.

Kernel parity on the device, bandwidth of each kernel, and the hosted model's shape with random weights: 1024x1024,
64 steps, guidance on, bfloat16. Needs torch, triton and transformers, and a checkout on the path; nothing else.

Each stage (see `gpu_stages`) is a process of its own with its own share of the time, since a kernel that writes where
it must not spoils its process, and one that hangs has to be ended. What a stage has found by then is in the report.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

LIMIT = 8 * 60
"""Seconds of everything together."""
SHARES = {"parity": 110, "draw": 250, "bandwidth": 60, "compiled": 110}
"""Stage -> seconds it may take at most, as far as they are left. In this order; the last is the first to go."""
IN_TRAINING = {"chosen_log_prob", "log_prob_gradient"}
"""Kernels that drawing does not need."""
TOO_LONG = "too long"
LEAST, GRACE = 20, 15
"""A stage is not begun with fewer seconds; it is ended when it takes so many more than it was told."""


def run_stage(stage: str, seconds: float, out: Path, small: bool, env: dict[str, str]) -> dict[str, Any]:
    """What one stage has found, however it ended; begun again behind what has spoiled its process."""
    path, began, found = out / f".gpu-{stage}.json", time.monotonic(), {}
    path.unlink(missing_ok=True)
    while (left := seconds - (time.monotonic() - began)) > LEAST / 2:
        command = [sys.executable, "-m", "dimoo.bench.gpu_stages", stage, "--seconds", int(left), "--json", path]
        command += ["--small"] * small + ["--skip", *found.get("tried", [])]
        try:
            code = subprocess.run(list(map(str, command)), env=env, timeout=left + GRACE).returncode
        except subprocess.TimeoutExpired:
            code = TOO_LONG
        new = json.loads(path.read_text("utf-8")) if path.exists() else {"failed": []}
        path.unlink(missing_ok=True)
        if code:
            new["failed"].append(f"ended after {left + GRACE:.0f} s" if code == TOO_LONG else f"ended with code {code}")
        again = code not in (0, TOO_LONG) and len(new.get("tried", [])) > len(found.get("tried", [])) + 1
        add(found, new)
        if not again:
            break
    return found | {"seconds": round(time.monotonic() - began, 1)}


def add(found: dict[str, Any], new: dict[str, Any]) -> None:
    """What lists held is kept before what they hold now; `tried` grows by itself."""
    for name, value in new.items():
        joined = isinstance(value, list) and name != "tried"
        found[name] = found.get(name, []) + value if joined else value


def merge(report: dict[str, Any], stage: str, found: dict[str, Any]) -> None:
    """Add a stage to the report."""
    found = dict(found)
    found.pop("tried", None)
    for name in ("failed", "skipped"):
        report[name] += [f"{stage}: {words}" for words in found.pop(name, [])]
    for name in ("seconds", "launches"):
        report.setdefault(name, {})[stage] = found.pop(name, None)
    add(report, found)


def save(report: dict[str, Any], out: Path) -> Path:
    """A list of one report, in a file that is named after the GPU; written aside, then renamed."""
    path = out / f"gpu-{re.sub(r'[^a-z0-9]+', '-', report['gpu'].lower()).strip('-')}.json"
    aside = path.with_name(path.name + ".part")
    aside.write_text(json.dumps([report], indent=1) + "\n", "utf-8")
    aside.replace(path)
    return path


def main(words: Sequence[str] | None = None) -> int:
    """Returns 0 when all stages found what they should."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("assets/benchmarks"))
    parser.add_argument("--stage", nargs="*", choices=SHARES, default=list(SHARES))
    parser.add_argument("--seconds", type=float, default=LIMIT, help="for everything")
    parser.add_argument("--small", action="store_true", help="toy sizes on any device, to see that it runs")
    given = parser.parse_args(words)
    given.out.mkdir(parents=True, exist_ok=True)
    began, path, env = time.monotonic(), None, dict(os.environ)
    report: dict[str, Any] = {"failed": [], "skipped": []}
    for stage in given.stage:
        left = given.seconds - (time.monotonic() - began) - GRACE
        if left < LEAST:
            report["skipped"].append(f"{stage}: all of it")
            continue
        merge(report, stage, run_stage(stage, min(SHARES[stage], left), given.out, given.small, env))
        if "gpu" not in report:
            break                                                               # no GPU: nothing else would be found
        if stage == "parity" and any(not IN_TRAINING & set(re.findall(r"\w+", words)) for words in report["failed"]):
            env["DIMOO_KERNELS"] = "off"                                        # the model is measured all the same
            print("kernels are off from here on", flush=True)
        report["total_seconds"] = round(time.monotonic() - began, 1)
        path = save(report, given.out)
    path = save(report, given.out) if path else None                            # with what was skipped at the end
    print(f"\n{time.monotonic() - began:.0f} s in all" + (f", written to {path}" if path else ""))
    for words in report["failed"]:
        print(f"FAILED {words}")
    return int(bool(report["failed"]))


if __name__ == "__main__":
    sys.exit(main())
