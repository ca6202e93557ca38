#!/usr/bin/env python3
"""Prometheus' own checks of docs/monitoring: that it loads the alert rules and parses every expression of the
dashboard, and that the alerts fire when they should (node/alerts_test.yml).

  tests/cli/monitoring_test.py

Status 77: promtool is missing, so the test is skipped. tools/install_peers fetches it. With
$SHOAL_REQUIRE_PEERS that is a failure.
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

TREE = Path(__file__).resolve().parents[2]
MONITORING = TREE / "docs/monitoring"
# What Grafana puts into an expression before Prometheus sees it.
VARIABLES = {"$__rate_interval": "5m", "$job_id": "run7"}


def find_promtool() -> str | None:
    fetched = TREE / "build/promtool/promtool"
    return str(fetched) if fetched.exists() else shutil.which("promtool")


def expressions_of_dashboard() -> list[str]:
    dashboard = json.loads((MONITORING / "shoal-dashboard.json").read_text())
    found = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]
    for name, value in VARIABLES.items():
        found = [expression.replace(name, value) for expression in found]
    return found


def main() -> int:
    promtool = find_promtool()
    if promtool is None:
        print("skipped: promtool is missing; tools/install_peers fetches it")
        return 1 if os.environ.get("SHOAL_REQUIRE_PEERS") else 77
    expressions = expressions_of_dashboard()
    if not expressions:
        print("FAILED: the dashboard has no expressions")
        return 1
    rules = [{"record": f"panel:{i}", "expr": expression} for i, expression in enumerate(expressions)]
    with tempfile.NamedTemporaryFile("w", suffix=".yml") as file:
        json.dump({"groups": [{"name": "dashboard", "rules": rules}]}, file)  # JSON is YAML
        file.flush()
        checks = [
            ["check", "rules", str(MONITORING / "shoal-alerts.yml")],
            ["test", "rules", str(TREE / "tests/cli/node/alerts_test.yml")],
            ["check", "rules", file.name],
        ]
        return max(subprocess.run([promtool, *check], check=False).returncode for check in checks)


if __name__ == "__main__":
    sys.exit(main())
