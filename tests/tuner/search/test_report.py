"""Reports: every candidate with its time, prediction and reason, the winner, and one file that fetches nothing."""

from __future__ import annotations

from dataclasses import replace
from html.parser import HTMLParser

import pytest

from tessera.tuner.records import Plan, Trial
from tessera.tuner.report import html, rank_agreement, summary, table
from tessera.tuner.search import Outcome

FAST = Trial(Plan.of({"tile": 64}), (800.0,) * 10, (1000.0,) * 10, predicted=700.0)
SLOW = Trial(Plan.of({"tile": 32}), (950.0,) * 10, (1000.0,) * 10, predicted=900.0)
HOPELESS = Trial(Plan.of({"tile": 8}), (2500.0,) * 3, (1000.0,) * 3, 2000.0, reason="2.50 times the safe plan's time")
FAILED = Trial(Plan.of({"tile": 999}), reason="not compiled: `tile` > 256 & <more>")
PRUNED = Trial(Plan.of({"tile": 4}), predicted=9000.0, reason="pruned by the model")
OUTCOME = Outcome((FAST, SLOW, HOPELESS, FAILED, PRUNED), FAST, 5, 1.25, "", "hybrid", 7)


class Checked(HTMLParser):
    """Counts tags, and finds what would be fetched or run."""

    def __init__(self) -> None:
        super().__init__()
        self.count: dict[str, int] = {}
        self.open: list[str] = []
        self.foreign: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.count[tag] = self.count.get(tag, 0) + 1
        if tag != "meta":
            self.open.append(tag)
        self.foreign += [name for name, _ in attrs if name in ("src", "href") or name.startswith("on")]

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.count[tag] = self.count.get(tag, 0) + 1

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def parse(text: str) -> Checked:
    found = Checked()
    found.feed(text)
    found.close()
    return found


def test_the_table_has_all_candidates_with_times_predictions_and_reasons() -> None:
    assert table(OUTCOME, accepted=True) == "\n".join(
        [
            "plan          time  predicted  safe plan  speed-up  why not",
            "-" * 87,
            "tile = 64   800 ns     700 ns       1 us     1.250",
            "tile = 32   950 ns     900 ns       1 us     1.053",
            "tile = 8    2.5 us       2 us       1 us     0.400  2.50 times the safe plan's time",
            "tile = 999                                          not compiled: `tile` > 256 & <more>",
            "tile = 4                 9 us                       pruned by the model",
            "",
            "hybrid search, seed 7: 3 of 5 plans measured (60 %) in 1.2 s",
            "rank correlation of predicted and measured time: 1.00",
            "adopted: tile = 64, 1.250 times as fast as the safe plan",
        ]
    )


def test_a_long_table_is_cut_and_says_so() -> None:
    found = table(OUTCOME, limit=2, width=6)
    assert "and 3 more" in found
    assert "tile …" in found
    assert "tile = 999" not in found
    assert "tile = 999" in table(OUTCOME, limit=None, width=None)


@pytest.mark.parametrize(
    ("accepted", "text"), [(None, "best: tile"), (True, "adopted: tile"), (False, "not adopted: the safe plan stays")]
)
def test_what_became_of_the_best_is_said(accepted: bool | None, text: str) -> None:
    assert text in summary(OUTCOME, accepted)[-1]


def test_an_early_end_and_an_empty_outcome_are_said() -> None:
    assert "stopped early: the budget was over" in summary(Outcome((), None, 3, 1.0, "budget"))[1]
    lines = summary(Outcome((), None, 3, 1.0, "interrupted"))
    assert "stopped early: it was interrupted" in lines[1]
    assert lines[-1] == "no plan may replace the safe plan"
    assert rank_agreement(Outcome((FAST,), FAST, 1, 1.0)) is None


def test_the_page_is_whole_fetches_nothing_and_shows_every_candidate() -> None:
    page = parse(html(OUTCOME, "GEMM <4096>", True, {"power (W)": 512.0, "link (GB/s)": None}))
    assert page.open == []
    assert page.foreign == []
    assert "script" not in page.count
    assert "link" not in page.count
    assert page.count["tr"] == 1 + len(OUTCOME.trials)
    assert page.count["circle"] == 3, "those that were predicted and measured"
    assert page.count["rect"] == 3
    assert "not compiled: `tile` > 256 & <more>" in page.text
    assert "GEMM <4096>" in page.text
    assert "power (W): 512" in page.text
    assert "link (GB/s): not reported" in page.text


def test_the_winner_is_marked() -> None:
    text = html(OUTCOME)
    assert text.count('<tr class="winner">') == 1
    assert text.count('class="dot winner"') == 1
    assert text.count('class="bar winner"') == 1


def test_a_page_without_measurements_has_only_the_table() -> None:
    page = parse(html(Outcome((FAILED, PRUNED), None, 2, 0.1)))
    assert "svg" not in page.count
    assert page.count["tr"] == 3


def test_what_a_gpu_reported_has_a_column_each_and_a_cpu_has_none() -> None:
    ran = replace(FAST, readings=(("link", None), ("power", 412.5)))
    found = parse(html(replace(OUTCOME, trials=(ran, FAILED), best=ran)))
    assert [name for name in found.text if name in ("power", "link")] == ["link", "power"]
    assert "412.5" in found.text
    assert found.text.count("not reported") == 1, "the plan that did not run has nothing to report"
    assert "power" not in parse(html(OUTCOME)).text
