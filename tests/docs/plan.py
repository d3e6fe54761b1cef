"""Which test runs which command of the pages. Of the lines that fit a command the first counts."""

from __future__ import annotations

from fnmatch import fnmatchcase

from pages import Command
from ways import By, Never, Parsed, Way

LONG = "takes minutes to hours; that it works is seen where it is run"
SPARK = "Spark takes some ten seconds to start: tests/spark runs the pipelines in one of its own"
FETCHES = "what it would fetch is installed already"
INSTALLED = "it is for a node that was installed for the system"
NO_SDK = "OpenTelemetry's SDK is not among what tests install"

ONE_NODE = "tests/docs/test_scenes.py::test_on_one_node"
MIRRORED = "tests/docs/test_scenes.py::test_mirrored_queues"
CLUSTERING = "tests/docs/test_scenes.py::test_clustering"
CELERY = "tests/docs/test_pages.py::test_celery_as_the_readme_says"
HELLO = "tests/docs/test_pages.py::test_a_first_message"
README_CTL = "tests/docs/test_pages.py::test_warrenctl_as_the_readme_says"
STARTS = "tests/docs/test_pages.py::test_warren_commands_on_the_pages_work"
IS_THERE = "tests/docs/test_commands.py::test_commands_of_warrenctl"
TRY_OUT = "tests/node_cluster/test_clustering_page.py::test_the_try_out_works"
SHOWCASE = "tests/node_cluster/test_showcase.py::test_a_killed_node_is_started_again"
DATA_DIR = "tests/live/test_serve_data_directory.py::test_the_flag_goes_before_all"
IN_MEMORY = "tests/live/test_serve_data_directory.py::test_in_memory"
INSTALL = "tests/install/test_install.py::test_the_installed_package_serves"
BENCH = "tests/ctl/test_message_commands.py::test_bench"
SHOVEL = "tests/shovel/test_shovels.py::test_once_from_the_command_line"
MIGRATION = "tests/shovel/test_migration.py::test_a_live_mirrored_cluster_moves"
SUBMIT = "tests/spark/test_spark_submit.py::test_an_audit_by_spark_submit"
SALVAGE = (
    "tests/mirrors/test_synchronising.py"
    "::test_a_replica_that_lacks_messages_is_promoted_if_asked_for"
)

#: (page, command, way), the first two with `*` for anything.
PLAN: list[tuple[str, str, Way]] = [
    ("*", "make *", Parsed(LONG)),
    ("*", "python -m bench*", Parsed(LONG)),
    ("*", ".venv/bin/python -m bench*", Parsed(LONG)),
    ("*", "python tests/*", Parsed(LONG)),
    ("*", ".venv/bin/python tests/*", Parsed(LONG)),
    ("*", "warren pipeline*", Parsed(SPARK)),
    ("README.md", "pip install .", By(INSTALL)),
    ("*", "pip install *", Parsed(FETCHES)),
    ("README.md", "celery *", By(CELERY)),
    ("README.md", "python -c *", By(CELERY)),
    ("README.md", "python hello.py", By(HELLO)),
    ("*", "warren cluster*", By(TRY_OUT)),
    ("*", "warren dev", By(STARTS)),
    ("*", "warren serve", By(STARTS)),
    ("*", "warren serve --config *", By(STARTS)),
    ("*", "warren serve --data-dir DIR", By(DATA_DIR)),
    ("*", "warren serve --in-memory", By(IN_MEMORY)),
    ("*", "warren showcase", By(SHOWCASE)),
    ("*", "warren shovel*", By(SHOVEL)),
    ("docs/migration.md", "rabbitmqctl *", By(MIGRATION)),
    ("*", "zip *", By(SUBMIT)),
    ("*", "spark-submit *", By(SUBMIT)),
    # No command as it stands: the name of one.
    ("README.md", "warrenctl join_cluster", By(IS_THERE)),
    ("README.md", "warrenctl set_policy *", By(TRY_OUT)),
    ("README.md", "warrenctl * ha.orders*", By(TRY_OUT)),
    ("README.md", "warrenctl *", By(README_CTL)),
    ("docs/operations/clustering.md", "warrenctl -n warren1@localhost *", By(TRY_OUT)),
    ("docs/operations/clustering.md", "warrenctl *", By(CLUSTERING)),
    ("docs/operations/mirrored-queues.md", "warrenctl salvage *", By(SALVAGE)),
    ("docs/operations/mirrored-queues.md", "warrenctl *", By(MIRRORED)),
    ("*", "warrenctl bench", By(BENCH)),
    ("*", "warrenctl *", By(ONE_NODE)),
    ("docs/operations/data-directory.md", "cp -a *", Never(INSTALLED)),
    ("docs/operating.md", "opentelemetry-instrument *", Never(NO_SDK)),
]


def way_of(command: Command) -> Way | None:
    """How a command is checked; None for one that nobody has thought of."""
    for page, text, way in PLAN:
        if fnmatchcase(command.page, page) and fnmatchcase(command.text, text):
            return way
    return None
