"""The same batch on a Ray cluster: Ray Data moves the items, an actor for each GPU answers them.

Results go straight into the folder, which every machine must see (a shared file system). The journal and the manifest
are written where the command runs, from what the actors send back, so a batch that was stopped goes on as it does on
one machine.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import ray

from dimoo.batch.items import Item
from dimoo.batch.runner import Plan, Records
from dimoo.batch.worker import Worker


class Actor:
    """A worker that gets chunks of items as rows, and gives back their records."""

    def __init__(self, plan: Plan):
        self.worker = Worker(plan.machine, plan.out, plan.batch)

    def __call__(self, rows: dict[str, Any]) -> dict[str, list[bytes]]:
        """Items and records travel pickled: they are ours, and Arrow need not know their fields."""
        made = [self.worker.answer(pickle.loads(chunk)) for chunk in rows["chunk"]]
        return {"records": [pickle.dumps(records) for records in made]}


def run(plan: Plan, chunks: Sequence[list[Item]]) -> Iterator[Records]:
    """Records of each chunk as they come. Joins the cluster at RAY_ADDRESS, or starts Ray on this machine."""
    if not ray.is_initialized():
        ray.init(log_to_driver=False, logging_level="warning", include_dashboard=False)
    ray.data.DataContext.get_current().enable_progress_bars = False
    plan = replace(plan, out=plan.out.resolve())
    gpus = 1 if ray.cluster_resources().get("GPU", 0) else 0
    rows = ray.data.from_items([{"chunk": pickle.dumps(chunk)} for chunk in chunks], override_num_blocks=len(chunks))
    made = rows.map_batches(
        Actor, fn_constructor_args=(plan,), batch_size=1, num_gpus=gpus, num_cpus=1,
        compute=ray.data.ActorPoolStrategy(size=plan.workers),
    )  # fmt: skip
    for row in made.iter_rows():
        yield pickle.loads(row["records"])
