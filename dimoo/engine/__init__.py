"""One worker that owns the pipeline, for everything that asks it from several sides: server, studio, batch."""

from dimoo.engine.engine import Engine, Limits, Report
from dimoo.engine.jobs import Cancelled, Closed, Job, QueueFull, Result, Sample

__all__ = ["Cancelled", "Closed", "Engine", "Job", "Limits", "QueueFull", "Report", "Result", "Sample"]
