"""Ten thousand queues are listed and filtered by the server, while a person would not yet blink."""

from __future__ import annotations

import statistics
from collections.abc import Callable

from browser import Browser
from scene import Api

from warren.testing import Cluster

MANY, WAIT_S_MAX, ROUNDS = 10_000, 0.3, 7
#: From a change of the filter to the rows on the screen, in ms, by the browser's own clock.
FILTER = """
(async () => {
  const field = document.querySelector(".filter-input");
  const began = performance.now();
  field.value = %r;
  field.dispatchEvent(new Event("input", { bubbles: true }));
  while (!document.querySelector(".list-count").textContent.startsWith(%r)) {
    await new Promise(requestAnimationFrame);
  }
  return performance.now() - began;
})()
"""


def test_ten_thousand_queues(
    browser: Browser, cluster: Cluster, judge_time: Callable[[float, float], None]
) -> None:
    api = Api(cluster.management_url(1))
    api.call("PUT", "vhosts/many", {})
    api.call("POST", "definitions/many", {"queues": [_queue(number) for number in range(MANY)]})
    # The choice of virtual hosts is asked for when a page is opened.
    browser.do("reload")
    browser.go("queues")
    browser.do("choose", selector="header select", value="many")
    browser.wait("text=10,000 queues")
    assert browser.amount("tbody tr") == 50
    browser.fill(".filter-input", "queue-0077")
    browser.wait("text=10 of 10,000")
    assert browser.amount("tbody tr") == 10
    browser.fill(".filter-input", "")
    browser.wait("text=10,000 queues")
    browser.click("button:has-text('Next')")
    browser.wait("text=queue-00050")
    filtering, listing = [], []
    for number in range(ROUNDS):
        filtering.append(browser.do("evaluate", script=FILTER % (f"queue-0{number:02}7", "10 of")))
        listing.append(browser.do("evaluate", script=FILTER % ("", "10,000 ")))
    print(f"filter, ms: {[round(each) for each in filtering]}")
    print(f"list, ms: {[round(each) for each in listing]}")
    assert browser.troubles() == []
    api.call("DELETE", "vhosts/many")
    judge_time(statistics.median(filtering) / 1000, WAIT_S_MAX)
    judge_time(statistics.median(listing) / 1000, WAIT_S_MAX)


def _queue(number: int) -> dict[str, object]:
    return {"name": f"queue-{number:05}", "durable": True, "auto_delete": False, "arguments": {}}
