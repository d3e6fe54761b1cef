"""The routes that publishes have led to, by exchange and routing key, within bounds.

A route is remembered until a binding changes. All routes of a virtual host share one bound, so that
publishers with ever new keys cannot fill the memory; those that lead to no queue share a far
smaller one, since there is no end to the keys that nothing is bound to. A route that is forgotten
is marked so: whoever still holds it asks again.
"""

from __future__ import annotations

from warren.model.ports import Route, RouteBook

#: Routes remembered in a virtual host.
ROUTES_MAX = 65536
#: Of these, routes without a queue; those that are decided message by message count as such.
EMPTY_ROUTES_MAX = 1024


class RememberedRoutes:
    """The route books of a virtual host's exchanges."""

    def __init__(self) -> None:
        self._books: dict[str, RouteBook] = {}
        self._count = 0
        #: Where empty routes were put; some of them may be gone meanwhile.
        self._empty: list[tuple[RouteBook, bytes]] = []

    def __len__(self) -> int:
        return self._count

    @property
    def exchanges(self) -> int:
        """How many exchanges have a book."""
        return len(self._books)

    def book(self, exchange: str) -> RouteBook:
        """The book of an exchange: another one once the exchange was deleted and declared anew."""
        book = self._books.get(exchange)
        if book is None:
            book = self._books[exchange] = RouteBook()
        return book

    def holds(self, exchange: str, book: RouteBook) -> bool:
        """Whether this is still the book of the exchange."""
        return self._books.get(exchange) is book

    def find(self, exchange: str, routing_key: bytes) -> Route | None:
        """The route, if it is remembered."""
        book = self._books.get(exchange)
        return None if book is None else book.routes.get(routing_key)

    def remember(self, exchange: str, routing_key: bytes, route: Route) -> None:
        """Keep a route that is not kept yet; others go when there are too many."""
        if self._count >= ROUTES_MAX:
            self.forget_all()
        book = self.book(exchange)
        if not route.queues:
            if len(self._empty) >= EMPTY_ROUTES_MAX:
                self._forget_empty()
            self._empty.append((book, routing_key))
        book.routes[routing_key] = route
        self._count += 1

    def forget(self, exchange: str) -> None:
        """No route of this exchange may be used any more."""
        book = self._books.get(exchange)
        if book is not None:
            self._count -= len(book.routes)
            book.forget()

    def forget_key(self, exchange: str, routing_key: bytes) -> None:
        """The route of one key may not be used any more."""
        if self.find(exchange, routing_key) is not None:
            self._books[exchange].forget_key(routing_key)
            self._count -= 1

    def forget_all(self) -> None:
        """No route may be used any more."""
        if not self._count:
            return
        for book in self._books.values():
            book.forget()
        self._count = 0
        self._empty.clear()

    def drop(self, exchange: str) -> None:
        """The exchange is gone: its book goes too, and what was checked for it is void."""
        self.forget(exchange)
        self._books.pop(exchange, None)

    def _forget_empty(self) -> None:
        for book, routing_key in self._empty:
            route = book.routes.get(routing_key)
            if route is not None and not route.queues:
                book.forget_key(routing_key)
                self._count -= 1
        self._empty.clear()
