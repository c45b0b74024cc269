#!/usr/bin/env python3
"""generate.py [--check]: docs/metrics.md, alert rules and dashboards, from the metrics that the sources define.

  rules.yaml                             for Prometheus
  ../kustomize/monitoring/rules.yaml     the same as a PrometheusRule
  ../helm/hotbed/files/rules.yaml        the same for the chart
  dashboards/*.json                      for Grafana
--check writes nothing, and ends with 1 if a file differs. A name that no program exports is an error.
"""

import argparse
import json
import pathlib
import re
import sys

from alerts import ALERTS
from dashboards import DASHBOARDS
from metric_registry import registry

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
NAME = re.compile(r"\b(?:hotbed|process)_[a-z0-9_]+\b")
MARK = "Made by deploy/observability/generate.py; change that."


def unknown_names(expression, metrics):
    """Names in a query that no program exports."""
    unknown = set()
    for name in NAME.findall(re.sub(r'"[^"]*"', "", expression)):
        stem = re.sub(r"_(bucket|sum|count)$", "", name)
        histogram = stem != name and stem in metrics and metrics[stem].kind == "histogram"
        if not histogram and (name not in metrics or metrics[name].kind == "histogram"):
            unknown.add(name)
    return unknown


def check_names(where, expression, metrics):
    unknown = unknown_names(expression, metrics)
    if unknown:
        sys.exit(f"generate.py: {where} asks for {', '.join(sorted(unknown))}, which no program exports")


def metrics_page(metrics):
    lines = [
        "# Metrics", "",
        f"<!-- {MARK} -->", "",
        "`/metrics` on the admin port of every process, in Prometheus's text format. Counters end in `_total` and begin at",
        "zero with each process. A histogram has the series `_bucket`, `_sum` and `_count`. No label has a value that clients",
        "choose freely, except the names of tables and of groups of trainers. Of a few counters there is also the time of",
        "the last count, in seconds since 1970: a gauge that ends in `_last_timestamp_seconds` in place of `_total`.", "",
        "Alert rules and dashboards are made from this list ([deploy/observability](../deploy/observability)).", ""]
    for exporter, title in (("server", "hotbed-server"), ("coordinator", "hotbed-coordinator"), ("both", "Both")):
        lines += [f"## {title}", "", "| metric | type | unit | labels | meaning |", "|---|---|---|---|---|"]
        lines += [f"| `{m.name}` | {m.kind} | {m.unit} | {', '.join(m.labels) or '-'} | {m.help} |"
                  for m in metrics.values() if m.exporter == exporter]
        lines.append("")
    lines += ["## Alerts", "", "| alert | severity | after | when | first step |", "|---|---|---|---|---|"]
    lines += [f"| `{a.name}` | {a.severity} | {a.lasts} | {re.sub(r' *{{.*?}} *', ' N ', a.summary).strip()} | {a.step} |"
              for a in ALERTS]
    return "\n".join(lines) + "\n"


def quoted(text):
    return json.dumps(text, ensure_ascii=False)


def rule_lines(indent):
    lines = ["groups:", "  - name: hotbed", "    rules:"]
    for alert in ALERTS:
        lines += [f"      - alert: {alert.name}", f"        expr: {quoted(alert.expr)}", f"        for: {alert.lasts}",
                  "        labels:", f"          severity: {alert.severity}", "        annotations:",
                  f"          summary: {quoted(alert.summary)}", f"          description: {quoted(alert.step)}"]
    return "".join(" " * indent + line + "\n" for line in lines)


def prometheus_rule():
    return (f"# {MARK}\napiVersion: monitoring.coreos.com/v1\nkind: PrometheusRule\nmetadata:\n  name: hotbed\n"
            "  labels:\n    app.kubernetes.io/name: hotbed\n    app.kubernetes.io/instance: hotbed\nspec:\n"
            + rule_lines(2))


def panel(number, title, unit, queries):
    return {
        "id": number, "type": "timeseries", "title": title,
        "gridPos": {"h": 8, "w": 12, "x": 12 * ((number - 1) % 2), "y": 8 * ((number - 1) // 2)},
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
        "targets": [{"refId": chr(ord("A") + i), "expr": query, "legendFormat": legend,
                     "datasource": {"type": "prometheus", "uid": "${datasource}"}}
                    for i, (query, legend) in enumerate(queries)],
    }


def dashboard(name, title, variables, panels):
    listed = [{"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Data source"}]
    listed += [{"name": variable, "type": "query", "query": query, "multi": True, "includeAll": True, "refresh": 2,
                "current": {"text": "All", "value": "$__all"},
                "datasource": {"type": "prometheus", "uid": "${datasource}"}} for variable, query in variables]
    return json.dumps({
        "uid": f"hotbed-{name}", "title": title, "tags": ["hotbed"], "schemaVersion": 38, "editable": True,
        "time": {"from": "now-1h", "to": "now"}, "refresh": "30s", "description": MARK,
        "templating": {"list": listed},
        "panels": [panel(i, *one) for i, one in enumerate(panels, 1)],
    }, indent=1) + "\n"


def files(metrics):
    """Path and text of each file."""
    for alert in ALERTS:
        check_names(f"alert {alert.name}", alert.expr, metrics)
    for name, (title, variables, panels) in DASHBOARDS.items():
        for _, query in variables:
            check_names(f"dashboard {name}", query, metrics)
        for _, _, queries in panels:
            for query, _ in queries:
                check_names(f"dashboard {name}", query, metrics)
        yield HERE / "dashboards" / f"{name}.json", dashboard(name, title, variables, panels)
    yield ROOT / "docs" / "metrics.md", metrics_page(metrics)
    yield HERE / "rules.yaml", f"# {MARK}\n" + rule_lines(0)
    yield HERE.parent / "kustomize" / "monitoring" / "rules.yaml", prometheus_rule()
    yield HERE.parent / "helm" / "hotbed" / "files" / "rules.yaml", f"# {MARK}\n" + rule_lines(0)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    stale = []
    for path, text in files(registry(ROOT)):
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        stale.append(str(path.relative_to(ROOT)))
        if not args.check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    if args.check and stale:
        sys.exit(f"not as the sources have it: {', '.join(stale)}; run deploy/observability/generate.py")
    print("\n".join(stale) or "all files are as the sources have them")


if __name__ == "__main__":
    main()
