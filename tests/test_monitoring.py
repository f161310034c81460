"""The dashboard and the alert rules: every family that they ask for is one that a gateway tells."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from rookhold_server.http.app import ROUTES
from rookhold_server.metrics.exposition import render
from rookhold_server.metrics.prometheus import PrometheusRecorder

if TYPE_CHECKING:
    from collections.abc import Iterator

DEPLOY = Path(__file__).parent.parent / "deploy"
SELECTOR = re.compile(r"\b(rookhold_[a-z_]+)(\{[^}]*\})?")
LABEL = re.compile(r'(\w+)="([^"]*)"')


@pytest.fixture(scope="module")
def series() -> dict[str, list[dict[str, str]]]:
    """Return the labels of every sample by name, as a new gateway tells them."""
    routes = {path: tuple(methods) for path, methods in ROUTES.items()}
    recorder = PrometheusRecorder(version="1", revision="", routes=routes)
    text = render(recorder.registry, None)[1].decode()
    told: dict[str, list[dict[str, str]]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            told.setdefault(sample.name, []).append(sample.labels)
    return told


def rules() -> list[dict[str, str]]:
    """Return the rules with their members side by side; the file keeps to one way of writing."""
    text = (DEPLOY / "prometheus" / "alerts.yml").read_text("utf-8")
    found = []
    for rule in text.split("      - alert: ")[1:]:
        name, _, rest = rule.partition("\n")
        members = dict(re.findall(r"^ +(\w+): (?!>-)(.+)$", rest, re.MULTILINE))
        if folded := re.search(r"expr: >-\n((?: {10}.+\n)+)", rest):
            members["expr"] = " ".join(folded[1].split())
        found.append({"alert": name, **members})
    return found


def panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((DEPLOY / "grafana" / "rookhold.json").read_text())[
        "panels"
    ]
    return found


def expressions() -> Iterator[str]:
    yield from (rule["expr"] for rule in rules())
    yield from (target["expr"] for panel in panels() for target in panel["targets"])


def test_every_expression_asks_for_series_that_exist(
    series: dict[str, list[dict[str, str]]],
) -> None:
    asked = set()
    for expression in expressions():
        assert expression.count("(") == expression.count(")")
        for name, selector in SELECTOR.findall(expression):
            asked.add(name)
            wanted = dict(LABEL.findall(selector))
            assert any(wanted.items() <= labels.items() for labels in series[name]), (name, wanted)
        for grouping in re.findall(r"by \(([^)]*)\)", expression):
            labels = {label.strip() for label in grouping.split(",")}
            name = SELECTOR.findall(expression)[0][0]
            assert any(labels <= set(one) for one in series[name]), (name, labels)
    assert len(asked) > 20


def test_each_rule_says_whom_it_wakes_and_what_to_look_at() -> None:
    names = [rule["alert"] for rule in rules()]
    assert len(names) == len(set(names)) >= 10
    for rule in rules():
        assert rule["severity"] in {"page", "ticket"}
        assert rule["summary"].endswith(".")
        assert rule["description"].endswith(".")


def test_panels_have_titles_of_their_own_and_do_not_overlap() -> None:
    titles = [panel["title"] for panel in panels()]
    assert len(titles) == len(set(titles))
    taken: set[tuple[int, int]] = set()
    for panel in panels():
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert all(0 <= x < 24 for x, _ in cells)
        taken |= cells


def test_the_scrape_job_asks_where_a_gateway_answers() -> None:
    text = (DEPLOY / "prometheus" / "scrape.yml").read_text("utf-8")
    assert dict(re.findall(r"^ +(\w+): (\S+)$", text, re.MULTILINE))["metrics_path"] in ROUTES
    assert "type: Bearer" in text
