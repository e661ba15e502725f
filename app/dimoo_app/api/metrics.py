"""Numbers for Prometheus, in a registry of their own so that several apps can live in one process."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from dimoo.engine import Engine, Report

SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
SIZES = (1, 2, 4, 8, 16, 32, 64)


class Metrics:
    """Counts requests (the guard tells it) and batches (the engine does)."""

    def __init__(self, engine: Engine):
        registry = self.registry = CollectorRegistry()
        self.active = 0
        """Requests whose answer is not complete."""
        self.requests = Counter("dimoo_requests", "Requests.", ["route", "method", "status"], registry=registry)
        self.seconds = Histogram("dimoo_request_seconds", "Until the last byte.", ["route"], buckets=SECONDS,
                                 registry=registry)  # fmt: skip
        self.samples = Counter("dimoo_samples", "Pictures and answers made.", ["kind"], registry=registry)
        self.failures = Counter("dimoo_failed_batches", "Batches that raised an error.", ["kind"], registry=registry)
        self.forwards = Counter("dimoo_forwards", "Rows sent through the network.", ["kind"], registry=registry)
        self.batches = Histogram("dimoo_batch_size", "Samples of a batch.", buckets=SIZES, registry=registry)
        self.busy = Counter("dimoo_busy_seconds", "The worker's time in batches.", registry=registry)
        Gauge("dimoo_waiting", "Samples in the queue.", registry=registry).set_function(lambda: engine.waiting)
        Gauge("dimoo_running", "Samples being computed.", registry=registry).set_function(lambda: engine.running)
        Gauge("dimoo_active_requests", "Requests being answered.", registry=registry).set_function(lambda: self.active)
        engine.observers.append(self.batch)

    def batch(self, report: Report) -> None:
        self.batches.observe(report.samples)
        self.busy.inc(report.seconds)
        if report.failed:
            self.failures.labels(report.kind).inc()
        else:
            if not report.stopped:
                self.samples.labels(report.kind).inc(report.samples)
            self.forwards.labels(report.kind).inc(report.forwards * report.samples)

    def text(self) -> bytes:
        return generate_latest(self.registry)
