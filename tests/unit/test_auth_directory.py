"""The directory: what is kept, who is let in, and the texts of refusals."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from warren.auth.directory import CredentialsRefused, Directory, DirectoryError
from warren.auth.password import hash_password
from warren.model.errors import AccessRefused, NotAllowed


@pytest.fixture
def directory() -> Directory:
    made = Directory()
    made.add_vhost("/")
    made.add_user("guest", "guest", ["administrator"])
    made.add_user("u", "pw")
    made.set_permissions("u", "/", "", "^a", ".*")
    return made


def test_authenticate(directory: Directory) -> None:
    assert directory.authenticate("u", "pw", peer_is_loopback=False).name == "u"
    for name, password in (("u", "bad"), ("nobody", "pw"), ("u", "")):
        with pytest.raises(CredentialsRefused) as caught:
            directory.authenticate(name, password, peer_is_loopback=True)
        assert caught.value.reply_text == (
            "ACCESS_REFUSED - Login was refused using authentication mechanism PLAIN. "
            "For details see the broker logfile."
        )
        assert caught.value.reason == f"PLAIN login refused: user '{name}' - invalid credentials"


def test_guest_is_for_localhost(directory: Directory) -> None:
    assert directory.authenticate("guest", "guest", peer_is_loopback=True).has_tag("administrator")
    with pytest.raises(CredentialsRefused) as caught:
        directory.authenticate("guest", "guest", peer_is_loopback=False, mechanism="AMQPLAIN")
    assert caught.value.reason == (
        "AMQPLAIN login refused: user 'guest' can only connect via localhost"
    )
    with pytest.raises(CredentialsRefused) as caught:
        directory.authenticate("guest", "bad", peer_is_loopback=False)
    assert caught.value.reason.endswith("invalid credentials")
    everywhere = Directory(loopback_users=())
    everywhere.add_user("guest", "guest")
    assert everywhere.authenticate("guest", "guest", peer_is_loopback=False)


def test_a_certificate_needs_no_password_but_a_user(directory: Directory) -> None:
    assert directory.authenticate("u", None, peer_is_loopback=False, mechanism="EXTERNAL")
    with pytest.raises(CredentialsRefused, match="EXTERNAL"):
        directory.authenticate("nobody", None, peer_is_loopback=False, mechanism="EXTERNAL")


def test_vhost_access(directory: Directory) -> None:
    directory.check_vhost_access("u", "/")
    with pytest.raises(NotAllowed) as caught:
        directory.check_vhost_access("guest", "/")
    assert caught.value.explanation == "access to vhost '/' refused for user 'guest'"
    with pytest.raises(NotAllowed) as caught:
        directory.check_vhost_access("u", "nope")
    assert caught.value.explanation == "vhost nope not found"


def test_access_texts(directory: Directory) -> None:
    directory.check_access("u", "/", "exchange", "amq.direct", "write")
    with pytest.raises(AccessRefused) as caught:
        directory.check_access("u", "/", "queue", "q", "configure")
    expected = "configure access to queue 'q' in vhost '/' refused for user 'u'"
    assert caught.value.explanation == expected
    with pytest.raises(AccessRefused) as caught:
        directory.check_access("guest", "/", "exchange", "x", "read")
    expected = "read access to exchange 'x' in vhost '/' refused for user 'guest'"
    assert caught.value.explanation == expected


def test_topic_access(directory: Directory) -> None:
    check = directory.check_topic_access
    check("u", "/", "amq.topic", "anything", "write")
    directory.set_topic_permissions("u", "/", "amq.topic", r"^{username}\.{client_id}", "^r")
    check("u", "/", "amq.topic", "u.c1.x", "write", client_id="c1")
    check("u", "/", "other", "anything", "write")
    check("u", "/", "amq.topic", "r", "read")
    with pytest.raises(AccessRefused) as caught:
        check("u", "/", "amq.topic", "q", "write")
    assert caught.value.explanation == (
        "write access to topic 'q' in exchange 'amq.topic' in vhost '/' refused for user 'u'"
    )
    directory.clear_topic_permissions("u", "/", "amq.topic")
    check("u", "/", "amq.topic", "q", "write")


def test_names_in_topic_patterns_are_quoted(directory: Directory) -> None:
    directory.add_user("a.c", "pw")
    directory.set_topic_permissions("a.c", "/", "amq.topic", "^{username}$", "")
    directory.check_topic_access("a.c", "/", "amq.topic", "a.c", "write")
    with pytest.raises(AccessRefused):
        directory.check_topic_access("a.c", "/", "amq.topic", "abc", "write")


CHANGES: list[Callable[[Directory], object]] = [
    lambda d: d.add_vhost("v"),
    lambda d: d.delete_vhost("/"),
    lambda d: d.set_vhost_limits("/", {"max-queues": 5}),
    lambda d: d.add_user("n", "pw"),
    lambda d: d.put_user("n", hash_password("pw")),
    lambda d: d.change_password("u", "new"),
    lambda d: d.clear_password("u"),
    lambda d: d.set_user_tags("u", ["management"]),
    lambda d: d.set_user_limits("u", {"max-channels": 5}),
    lambda d: d.delete_user("u"),
    lambda d: d.set_permissions("u", "/", "", "", ""),
    lambda d: d.clear_permissions("u", "/"),
    lambda d: d.set_topic_permissions("u", "/", "amq.topic", "", ""),
]


@pytest.mark.parametrize("change", CHANGES)
def test_every_change_raises_the_epoch(
    directory: Directory, change: Callable[[Directory], object]
) -> None:
    before = directory.epoch
    change(directory)
    assert directory.epoch > before


REFUSED: list[tuple[Callable[[Directory], object], str]] = [
    (lambda d: d.add_user("u", "pw"), "user 'u' already exists"),
    (lambda d: d.change_password("n", "pw"), "user 'n' does not exist"),
    (lambda d: d.delete_user("n"), "user 'n' does not exist"),
    (lambda d: d.put_user("n", "???"), "the password hash of user 'n' is not a salted hash"),
    (lambda d: d.put_user("n", "", "rot13"), "unknown hashing algorithm 'rot13'"),
    (lambda d: d.set_permissions("n", "/", "", "", ""), "user 'n' does not exist"),
    (lambda d: d.set_permissions("u", "v", "", "", ""), "vhost 'v' does not exist"),
    (lambda d: d.set_permissions("u", "/", "(", "", ""), "regular expression '(' is invalid"),
    (
        lambda d: d.set_user_limits("u", {"foo": 1}),
        'Unrecognised terms [{<<"foo">>,1}] in limits',
    ),
    (
        lambda d: d.set_vhost_limits("/", {"max-queues": "a"}),
        'max-queues should be a number, actually was <<"a">>',
    ),
]


@pytest.mark.parametrize(("request_", "text"), REFUSED)
def test_refused_requests_change_nothing(
    directory: Directory, request_: Callable[[Directory], object], text: str
) -> None:
    before = directory.epoch
    with pytest.raises(DirectoryError) as caught:
        request_(directory)
    assert str(caught.value).startswith(text)
    assert directory.epoch == before


def test_deleting_a_user_or_vhost_takes_its_permissions(directory: Directory) -> None:
    directory.add_vhost("v")
    directory.set_permissions("guest", "v", ".*", ".*", ".*")
    directory.set_topic_permissions("u", "/", "amq.topic", "", "")
    directory.delete_user("u")
    assert [held.vhost for held in directory.list_permissions()] == ["v"]
    assert directory.list_topic_permissions() == []
    directory.delete_vhost("v")
    assert directory.list_permissions() == []
    assert directory.list_vhosts() == ["/"]


def test_listing(directory: Directory) -> None:
    directory.add_vhost("v")
    directory.set_permissions("u", "v", ".*", ".*", ".*")
    assert [user.name for user in directory.list_users()] == ["guest", "u"]
    assert [held.vhost for held in directory.list_permissions(user="u")] == ["/", "v"]
    assert [held.user for held in directory.list_permissions(vhost="v")] == ["u"]
    assert directory.permission("guest", "/") is None


def test_limits(directory: Directory) -> None:
    directory.set_vhost_limits("/", {"max-connections": 0, "max-queues": -1})
    assert directory.vhost_limit("/", "max-connections") == 0
    assert directory.vhost_limit("/", "max-queues") is None
    user = directory.set_user_limits("u", {"max-channels": 3})
    assert (user.limit("max-channels"), user.limit("max-connections")) == (3, None)


def test_weak_passwords_can_be_refused() -> None:
    def validate(name: str, password: str) -> None:
        if len(password) < 4:
            raise ValueError("minimum required password length is 4")

    directory = Directory(validate_credentials=validate)
    with pytest.raises(DirectoryError, match="minimum required"):
        directory.add_user("u", "pw")
    directory.add_user("u", "longer")
