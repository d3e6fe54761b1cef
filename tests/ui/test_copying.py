"""Every table can be copied, by mouse and by keys, and says that it was."""

from __future__ import annotations

import csv
import io
import json

from browser import Browser

#: Where a short table stands, what its button is called, and what must be among the cells.
SHORT = {
    "": ("Nodes", "node2@localhost"),
    "queues/%2F/orders.new/bindings": ("Bindings", "order.new"),
    "queues/%2F/mail.outgoing/consumers": ("Consumers", "mailer-1"),
    "queues/%2F/audit.all/mirrors": ("Copies of the queue", "synchronised"),
    "exchanges/%2F/shop.orders": ("Bindings from here", "order.shipped.#"),
    "dead-letters": ("Causes in dead.letters", "rejected by a consumer"),
    "limits": ("Limits of Users", "max-connections"),
    "users/olga": ("Permissions", "^shop\\."),
    "salvage": ("Salvaged pieces", "12 messages of orders.new"),
}


def button(label: str) -> str:
    return f"button[aria-label='Copy the table {label}']"


def copy(browser: Browser, label: str, form: str) -> str:
    # What it gets shows that it may read; the page itself needs no permission.
    browser.do("clipboard")
    browser.click(button(label))
    browser.click(f".menu-box:popover-open >> text=Copy as {form}")
    browser.wait(f".message:has-text('copied as {form}')")
    return str(browser.do("clipboard"))


def test_short_tables_are_copied(browser: Browser) -> None:
    for place, (label, cell) in SHORT.items():
        browser.go(place)
        browser.wait(button(label))
        rows = list(csv.reader(io.StringIO(copy(browser, label, "CSV"))))
        assert len({len(row) for row in rows}) == 1, (place, rows)
        assert any(cell in each for row in rows[1:] for each in row), (place, rows)
        # Buttons of a row are none of its data.
        assert not any(each.endswith("…") for row in rows for each in row), rows
        tabbed = [line.split("\t") for line in copy(browser, label, "TSV").split("\n")]
        assert tabbed == rows
        kept = json.loads(copy(browser, label, "JSON"))
        assert len(kept) == len(rows) - 1
    assert browser.troubles() == []


def test_a_list_is_copied_as_it_is_filtered(browser: Browser) -> None:
    browser.go("queues?name=orders")
    browser.wait("main >> text=orders.shipped")
    rows = json.loads(copy(browser, "queues", "JSON"))
    assert {"orders.new", "orders.paid", "orders.shipped"} <= {row["name"] for row in rows}
    assert all("orders" in row["name"] for row in rows)
    assert all(isinstance(row["messages_ready"], int) for row in rows)
    head = copy(browser, "queues", "CSV").split("\n")[0]
    assert head.startswith("Name,Features,Node")


def test_copying_needs_no_mouse(browser: Browser) -> None:
    browser.go("limits")
    browser.wait(button("Limits of Users"))
    browser.do("clipboard")
    browser.do("evaluate", script=f'document.querySelector("{button("Limits of Users")}").focus()')
    browser.press("Enter")
    browser.wait(".menu-box:popover-open")
    browser.press("Escape")
    browser.until(lambda: browser.amount(".menu-box:popover-open") == 0, "Escape closes the menu")
    browser.press("Enter")
    browser.press("Tab")
    browser.press("Tab")
    browser.press("Enter")
    browser.wait(".message:has-text('1 row copied as TSV')")
    assert browser.do("clipboard").startswith("User\tLimit\tValue\n")
    # The focus is where it was.
    name = browser.do("evaluate", script="document.activeElement.getAttribute('aria-label')")
    assert name == "Copy the table Limits of Users"


def test_copying_where_the_page_gets_no_clipboard(browser: Browser) -> None:
    """Over http from another machine: browsers keep their clipboard from such pages."""
    browser.do("clipboard")
    browser.go("limits")
    browser.wait(button("Limits of Users"))
    browser.do(
        "evaluate",
        script="""
        const kept = navigator.clipboard;
        Object.defineProperty(navigator, 'clipboard', { configurable: true, get: () => undefined });
        globalThis.giveBack = () =>
          Object.defineProperty(navigator, 'clipboard', { configurable: true, get: () => kept });
        """,
    )
    browser.click(button("Limits of Users"))
    browser.click(".menu-box:popover-open >> text=Copy as CSV")
    browser.wait(".message:has-text('1 row copied as CSV')")
    browser.do("evaluate", script="giveBack()")
    assert browser.do("clipboard").startswith("User,Limit,Value\n")
