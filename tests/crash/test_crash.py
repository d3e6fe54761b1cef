"""The fast part of `make crash`: a few kills, a few orderly stops, all promises."""

from __future__ import annotations

from pathlib import Path

import pytest
from broker_process import Kind
from campaign import Campaign, Options, run_campaign

#: The moments and the load are drawn from it; how they meet is up to the machine.
SEED = 3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ends", "orderly", "kind"),
    [(8, False, Kind.AS_SERVED), (4, True, Kind.AS_SERVED), (6, False, Kind.RESTLESS)],
    ids=["kills", "stops", "restless"],
)
def test_what_was_confirmed_is_still_there(
    ends: int, orderly: bool, kind: Kind, tmp_path: Path
) -> None:
    options = Options(ends=ends, seed=SEED, base=tmp_path, orderly=orderly, kind=kind)
    campaign = Campaign(options)
    try:
        outcome = run_campaign(campaign)
    finally:
        campaign.history.save(tmp_path / "history.jsonl")
    problems = outcome.verdict.problems
    shown = "\n".join(map(str, problems[:20]))
    assert not problems, f"{len(problems)} problems, seed {SEED}, kept in {tmp_path}\n{shown}"
    assert outcome.verdict.numbers["first seen after a restart"] > 0
