"""Metrics of the door. One registry a process, made in `build_app` and handed down."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
_RATIOS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0)


class Measures:
    """What the api counts and times."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        self.requests = Counter(
            "cutlog_api_requests_total",
            "Answers by route and status.",
            ["route", "status"],
            registry=registry,
        )
        self.seconds = Histogram(
            "cutlog_api_request_seconds",
            "From the head of a request to the end of its answer; streams not counted.",
            ["route"],
            buckets=_SECONDS,
            registry=registry,
        )
        self.reply_seconds = Histogram(
            "cutlog_api_reply_seconds",
            "From the append of a command to its answer.",
            buckets=_SECONDS,
            registry=registry,
        )
        self.submissions = Counter(
            "cutlog_api_submissions_total",
            "Submissions by outcome: accepted, pending, known, or a refusal's code.",
            ["outcome"],
            registry=registry,
        )
        self.refusals = Counter(
            "cutlog_api_refusals_total",
            "Refusals by code.",
            ["code"],
            registry=registry,
        )
        self.unanswered = Gauge(
            "cutlog_api_unanswered",
            "Commands appended and not yet answered, by partition.",
            ["topic", "partition"],
            registry=registry,
        )
        self.unanswered_seconds = Gauge(
            "cutlog_api_unanswered_seconds",
            "Age of the oldest of them.",
            ["topic", "partition"],
            registry=registry,
        )
        self.streams = Gauge(
            "cutlog_api_streams", "Open event streams.", ["kind"], registry=registry
        )
        self.stream_events = Counter(
            "cutlog_api_stream_events_total", "Events sent on streams.", ["kind"], registry=registry
        )
        self._add_materials(registry)
        self._add_results(registry)
        self.read_model_behind_seconds = Gauge(
            "cutlog_api_read_model_behind_seconds",
            "How far the read model is behind the log, as it says itself.",
            registry=registry,
        )
        self.policy_version = Gauge(
            "cutlog_api_policy_version", "Version of the policy in use; 0: none.", registry=registry
        )
        self.estimate_error = Histogram(
            "cutlog_estimate_error_ratio",
            "How far off the wait told at the door was, as a share of the wait (5 s at least).",
            ["pool", "lane"],
            buckets=_RATIOS,
            registry=registry,
        )

    def _add_materials(self, registry: CollectorRegistry) -> None:
        self.store_hints = Counter(
            "cutlog_api_store_hints_total",
            "Records of the object store's notifications by what came of them; what is not"
            " completed, result_lost or content_lost was ignored.",
            ["outcome"],
            registry=registry,
        )
        self.proofs = Counter(
            "cutlog_api_proofs_total",
            "Answers to challenges: right, wrong, or not looked at after too many wrong ones.",
            ["outcome"],
            registry=registry,
        )

    def _add_results(self, registry: CollectorRegistry) -> None:
        self.results = Counter(
            "cutlog_api_results_delivered_total",
            "Results whose addresses were handed out.",
            ["temperature"],
            registry=registry,
        )
        self.result_bytes = Counter(
            "cutlog_api_result_bytes_delivered_total",
            "What they hold, all their files.",
            ["temperature"],
            registry=registry,
        )
