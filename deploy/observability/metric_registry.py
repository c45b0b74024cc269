"""The metrics that the programs export, as the C++ sources define them: name, type, help, labels, and who exports them.

The sources are the registry: a metric is a call with a literal name and a literal help (common/metrics.h,
common/status_numbers.h). tests/deploy compares this with what running processes export.
"""

import dataclasses
import pathlib
import re

FOLDERS = ("admin", "common", "kv", "ports", "proto", "security", "server", "serving", "planner")
LITERALS = r'("(?:\\.|[^"\\])*"(?:\s*"(?:\\.|[^"\\])*")*)'
METRIC = re.compile(r'(?P<before>\w*)\s*[({]\s*(?:"[\w ]*",\s*)?"(?P<name>(?:hotbed|process)_[a-z0-9_]+)"\s*,\s*(?P<help>' + LITERALS[1:-1] + ')')
CONSTANT = re.compile(r'constexpr char (k\w+)\[\]\s*=\s*' + LITERALS + ';')
COMMENT = re.compile(r'//[^\n]*')
# Labels that the sources do not write beside the name.
LABELS = {
    "hotbed_access_refused_total": ("port",),
    "hotbed_build_info": ("compiler", "version"),
    "hotbed_coordinator_group_committed_step": ("group",),
    "hotbed_coordinator_group_fastest_step": ("group",),
    "hotbed_coordinator_group_slowest_step": ("group",),
    "hotbed_coordinator_requests_total": ("method", "outcome"),
    "hotbed_coordinator_servers": ("state",),
    "hotbed_coordinator_shard_changes_total": ("kind",),
    "hotbed_coordinator_shards": ("state",),
    "hotbed_coordinator_trainers": ("group",),
    "hotbed_port_accepted_total": ("port",),
    "hotbed_port_connections": ("port",),
    "hotbed_port_ended_total": ("port", "reason"),
    "hotbed_port_unfinished_bytes": ("port",),
    "hotbed_replica_queued_bytes": ("server",),
    "hotbed_replica_received_held_bytes": ("kind",),
    "hotbed_server_followed_bytes_total": ("call",),
    "hotbed_server_in_flight_bytes": ("budget",),
    "hotbed_server_in_flight_limit_bytes": ("budget",),
    "hotbed_server_kernels_info": ("fetch", "instructions"),
    "hotbed_server_log_segments_total": ("file",),
    "hotbed_server_numbers_not_given_total": ("number",),
    "hotbed_server_refusals_total": ("code",),
    "hotbed_server_slow_requests_total": ("kind",),
    "hotbed_serving_age_seconds": ("cut", "table"),
    "hotbed_serving_copy_lookup_rows_total": ("cut", "table"),
    "hotbed_serving_device_hits_total": ("cut", "table"),
    "hotbed_serving_device_rows": ("cut", "table"),
    "hotbed_serving_disk_bytes": ("cut", "table"),
    "hotbed_serving_http_requests_total": ("code",),
    "hotbed_serving_kernels_info": ("instructions",),
    "hotbed_serving_lookups_total": ("outcome",),
    "hotbed_serving_memory_rows": ("cut", "table"),
    "hotbed_serving_ready": ("cut", "table"),
    "hotbed_serving_rows": ("cut", "table"),
    "hotbed_serving_rows_bytes": ("cut", "table"),
    "hotbed_serving_versions_bytes": ("cut", "table"),
    "hotbed_serving_versions_held": ("cut", "table"),
    "hotbed_serving_versions_ordered": ("cut", "table"),
    "hotbed_serving_versions_taken_up_total": ("outcome",),
}
# What is counted, where the last word of the name does not say it.
COUNTED = {"doubt": "shards", "short": "shards", "waiting": "shards", "pending": "requests", "ended": "connections",
           "accepted": "connections", "overflows": "times", "broken": "streams", "opened": "streams", "failed": "streams",
           "stalled": "streams", "sent": "records", "taken": "records", "refused": "shards", "diverged": "shards",
           "parked": "requests", "received": "shards", "appends": "records", "renewals": "times", "written": "rows", "deleted": "rows", "refusals": "segments",
           "revision": "number", "step": "number", "items": "messages", "changes": "shards"}
EXACT = {"hotbed_serving_disk_rows_read_total": "rows",
         "hotbed_access_refused_total": "refusals",
         "hotbed_server_transfer_rate_limit_bytes": "bytes/s", "hotbed_server_replica_messages_refused_total": "messages",
         "hotbed_server_numbers_not_given_total": "requests",
         "hotbed_server_traceparents_ignored_total": "trace contexts",
         "hotbed_server_snapshots_failed_total": "shards", "hotbed_server_snapshots_sent_total": "shards",
         "hotbed_coordinator_commit_failures_total": "transactions", "hotbed_coordinator_backup_failures_total": "backups",
         "hotbed_coordinator_scheduled_save_failures_total": "saves"}
UNITS = (("_bytes_per_second", "bytes/s"), ("_seconds", "seconds"), ("_bytes", "bytes"), ("_info", "1"), ("_fds", "files"))
NO_YES = re.compile(r"_(read_only|device_failed|data_given_up|ready)$")


@dataclasses.dataclass(frozen=True)
class Metric:
    name: str
    kind: str  # counter, gauge, histogram
    help: str
    exporter: str  # server, coordinator, both
    labels: tuple

    @property
    def unit(self):
        stem = self.name.removesuffix("_total")
        if NO_YES.search(stem):
            return "0 or 1"
        last = stem.rsplit("_", 1)[1]
        found = EXACT.get(self.name) or next((unit for suffix, unit in UNITS if stem.endswith(suffix)), None)
        return found or COUNTED.get(last, last)


def text_of(literals):
    return "".join(re.findall(r'"((?:\\.|[^"\\])*)"', literals)).replace('\\"', '"')


def exporter_of(path):
    return {"server": "server", "serving": "server", "planner": "coordinator"}.get(path.parts[0], "both")


def metrics_of(source, path):
    source = COMMENT.sub("", source)
    for name, literal in CONSTANT.findall(source):
        source = re.sub(rf"\b{name}\b(?!\[)", lambda _, text=literal: text, source)
    for match in METRIC.finditer(source):
        name = match["name"]
        if name.startswith("process_") and path.name != "process_stats.cc":
            continue
        kind = "counter" if name.endswith("_total") else "gauge"
        if re.search(r"LatencyHistogram\s+\w*$", source[:match.end("before")]):
            kind = "histogram"
        labels = ("table",) if name.startswith("hotbed_table_") else LABELS.get(name, ())
        yield Metric(name, kind, text_of(match["help"]), exporter_of(path), labels)


def registry(root):
    """All metrics by name. ValueError: one is defined twice, with different texts."""
    found = {}
    root = pathlib.Path(root)
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix not in (".cc", ".h"):
                continue
            for metric in metrics_of(path.read_text(encoding="utf-8"), path.relative_to(root)):
                if found.setdefault(metric.name, metric).help != metric.help:
                    raise ValueError(f"{metric.name} has two helps: {found[metric.name].help!r} and {metric.help!r}")
    return dict(sorted(found.items()))
