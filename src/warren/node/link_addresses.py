"""Where the links of other nodes are: as configured, else as told, else as their names say.

What was told is kept in agreement/addresses, so that a node that was joined by a command finds the
others after a restart.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path

import msgspec

from warren.config.cluster import link_endpoint, peer_endpoint
from warren.config.settings import Endpoint, Settings
from warren.net.link_tls import link_contexts
from warren.net.peers.settings import PeerTls
from warren.node.errors import StartError

BYTES_MAX = 1 << 20
_ANYWHERE = {None, "", "::", "0.0.0.0", "*"}


class LinkAddresses:
    """See the module's text. Raises ValueError as `link_endpoint` does."""

    def __init__(self, settings: Settings, name: str, data_dir: Path | None) -> None:
        self._settings = settings
        self._name = name
        self._path = data_dir / "agreement" / "addresses" if data_dir is not None else None
        self._told = self._read()

    def own(self, port: int) -> str:
        """What this node tells the others: where it listens, by its name's host if anywhere."""
        host = link_endpoint(self._settings).host
        return format_address(
            self._name.partition("@")[2] if host in _ANYWHERE else str(host), port
        )

    def known(self, own_port: int) -> dict[str, str]:
        """All that is to be told, with our own."""
        return {**self._told, self._name: self.own(own_port)}

    def of(self, name: str) -> tuple[str, int]:
        """Where a node is called."""
        if name not in self._settings.cluster.links and name in self._told:
            found = parse_address(self._told[name])
            if found is not None:
                return found
        endpoint: Endpoint = peer_endpoint(self._settings, name)
        return endpoint.host or "127.0.0.1", endpoint.port

    def told(self, addresses: Mapping[str, str], teller: str = "") -> None:
        """A node has told where nodes are; of itself it knows best."""
        before = dict(self._told)
        for name, address in addresses.items():
            is_news = name == teller or name not in self._told
            if name != self._name and is_news and parse_address(address) is not None:
                self._told[name] = address
        if self._told != before:
            self._write()

    def names(self) -> frozenset[str]:
        """Who was told of."""
        return frozenset(self._told)

    def _read(self) -> dict[str, str]:
        if self._path is None:
            return {}
        try:
            with self._path.open("rb") as file:
                return msgspec.json.decode(file.read(BYTES_MAX), type=dict[str, str])
        except (OSError, msgspec.DecodeError, UnicodeDecodeError):
            # It only saves asking again.
            return {}

    def _write(self) -> None:
        if self._path is None:
            return
        new = self._path.with_name("addresses.new")
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
            new.write_bytes(msgspec.json.encode(self._told))
            new.rename(self._path)


def format_address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def parse_address(text: str) -> tuple[str, int] | None:
    """Host and port; None for what is no address."""
    host, _, port = text.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 1 << 16:
        return None
    return host.removeprefix("[").removesuffix("]"), int(port)


def own_endpoint(settings: Settings) -> Endpoint:
    """Where this node listens for links. Raises StartError."""
    try:
        return link_endpoint(settings)
    except ValueError as error:
        raise StartError(str(error)) from error


def own_tls(settings: Settings) -> PeerTls | None:
    """What links are encrypted with, if they are. Raises StartError."""
    try:
        contexts = link_contexts(settings.cluster.tls)
    except ValueError as error:
        raise StartError(str(error)) from error
    return None if contexts is None else PeerTls(*contexts)
