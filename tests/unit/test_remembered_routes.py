"""The bounds of what a virtual host remembers about publishes."""

from __future__ import annotations

from warren.engine.remembered_routes import EMPTY_ROUTES_MAX, ROUTES_MAX, RememberedRoutes
from warren.model.message import Address
from warren.model.ports import QueuePort, Route


def put(routes: RememberedRoutes, exchange: str, key: bytes, *names: str) -> Route:
    queues = tuple(QueuePort() for _ in names)
    route = Route(Address(exchange.encode(), key), None, queues, True)
    routes.remember(exchange, key, route)
    return route


def test_many_keys_of_one_exchange() -> None:
    routes = RememberedRoutes()
    for number in range(20_000):
        put(routes, "e", b"%d" % number, "q")
    assert len(routes) == 20_000
    assert all(routes.find("e", b"%d" % number) is not None for number in range(20_000))


def test_the_bound_is_shared_by_all_exchanges() -> None:
    routes = RememberedRoutes()
    first = put(routes, "0", b"first", "q")
    for number in range(ROUTES_MAX - 1):
        put(routes, f"{number % 7}", b"%d" % number, "q")
    assert len(routes) == ROUTES_MAX
    assert first.valid
    put(routes, "one", b"more", "q")
    assert len(routes) == 1
    assert not first.valid


def test_routes_to_nowhere_do_not_push_out_the_others() -> None:
    routes = RememberedRoutes()
    useful = put(routes, "e", b"useful", "q")
    for number in range(3 * EMPTY_ROUTES_MAX):
        put(routes, f"{number % 5}", b"%d" % number)
    assert len(routes) <= EMPTY_ROUTES_MAX + 1
    assert useful.valid
    assert routes.find("e", b"useful") is useful


def test_a_route_that_leads_somewhere_meanwhile_is_kept() -> None:
    routes = RememberedRoutes()
    put(routes, "e", b"k")
    routes.forget_key("e", b"k")
    useful = put(routes, "e", b"k", "q")
    for number in range(EMPTY_ROUTES_MAX):
        put(routes, "e", b"%d" % number)
    assert routes.find("e", b"k") is useful


def test_the_count_follows_what_is_forgotten() -> None:
    routes = RememberedRoutes()
    for exchange in ("a", "b", "c"):
        put(routes, exchange, b"1", "q")
        put(routes, exchange, b"2", "q")
    routes.forget_key("a", b"1")
    routes.forget_key("a", b"unknown")
    routes.forget_key("unknown", b"1")
    assert len(routes) == 5
    routes.forget("b")
    assert len(routes) == 3
    routes.drop("c")
    assert (len(routes), routes.exchanges) == (1, 2)
    routes.forget_all()
    assert len(routes) == 0


def test_a_new_exchange_of_an_old_name_has_another_book() -> None:
    routes = RememberedRoutes()
    route = put(routes, "e", b"k", "q")
    book = routes.book("e")
    assert routes.holds("e", book)
    routes.drop("e")
    assert not route.valid
    assert not book.routes
    assert not routes.holds("e", book)
    assert routes.book("e") is not book
