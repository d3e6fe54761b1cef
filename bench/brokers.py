"""The contestants: how each broker is started on 127.0.0.1, found ready, and ended.

Every broker lives in a directory of its own that is thrown away with it. Ended are only processes
started here, by their id.
"""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from pathlib import Path

READY_TIMEOUT_S = 90.0
#: RabbitMQ writes the index of a large queue when it is asked to end.
STOP_TIMEOUT_S = 60.0
SESSION_END_S = 10.0
PORT_POLL_S = 0.02

#: Debian's `rabbitmq-server` in PATH insists on its own user; the script below it does not.
RABBITMQ_SCRIPT = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
ROOT = Path(__file__).resolve().parent.parent
PROTOTYPE_DEFAULT = ROOT.parent / "shared" / "prototypes" / "dataplane" / "hot.pyx"


class BrokerError(Exception):
    """A broker did not start, or ended by itself."""


def free_ports(count: int) -> list[int]:
    """Ports of 127.0.0.1 that nothing listens on now, all different."""
    with contextlib.ExitStack() as probes:
        ports = []
        for _ in range(count):
            probe = probes.enter_context(socket.socket())
            probe.bind(("127.0.0.1", 0))
            ports.append(int(probe.getsockname()[1]))
        return ports


def free_port() -> int:
    """A port of 127.0.0.1 that nothing listens on now."""
    return free_ports(1)[0]


def end_process(process: subprocess.Popen[bytes]) -> None:
    """Asks a process that we started to end; kills it when it does not."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


class Broker(ABC):
    """One contestant; start and stop may be repeated, each start is a fresh broker."""

    name: str
    #: Of a node of a cluster.
    node_name: str = ""
    #: Whether it knows more than the default exchange and one queue.
    full: bool = True
    #: Which loads it takes part in: those that are kept in memory, those that are kept on disk.
    in_memory: bool = True
    on_disk: bool = False
    #: Several nodes; takes part in the loads for such, and in no others.
    clustered: bool = False

    def __init__(self, base: Path) -> None:
        self.base = base / self.name
        #: Lines of rabbitmq.conf for the next start, beside those that it always has.
        self.settings: dict[str, str] = {}
        self.port = 0
        #: Of the management API; 0: nobody asks for it.
        self.http_port = 0
        self.process: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def command(self) -> list[str]:
        """The command line; called after the directory and the port are chosen."""

    def environment(self) -> dict[str, str]:
        """Variables beside our own."""
        return {}

    @property
    def pid(self) -> int:
        """The process to measure, with everything below it."""
        if self.process is None or self.process.poll() is not None:
            raise BrokerError(f"{self.name} is not running\n{self.log_tail()}")
        return self.process.pid

    @property
    def pids(self) -> list[int]:
        """One process for each node."""
        return [self.pid]

    @property
    def is_running(self) -> bool:
        """Whether all of it is."""
        return self.process is not None and self.process.poll() is None

    @property
    def data_directory(self) -> Path:
        """Where the messages are, if they are on disk."""
        return self.base / "data"

    @property
    def log_directory(self) -> Path:
        """The part of the data that grows with every message."""
        return self.data_directory

    @property
    def endpoint(self) -> str:
        """HOST:PORT."""
        return f"127.0.0.1:{self.port}"

    @property
    def endpoints(self) -> str:
        """HOST:PORT of all nodes, with commas between."""
        return self.endpoint

    def start(self) -> None:
        """Starts afresh and returns once the port answers.

        Raises:
            BrokerError: it ended, or did not answer in time.
        """
        shutil.rmtree(self.base, ignore_errors=True)
        self.base.mkdir(parents=True)
        self.port = free_port()
        self._launch()
        self.await_port()

    def _launch(self) -> None:
        command, environment = self.command(), {**os.environ, **self.environment()}
        with (self.base / "output.log").open("ab") as log:
            # A session of its own: an interrupt at the terminal reaches us alone, and we end it.
            self.process = subprocess.Popen(
                command,
                cwd=self.base,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def halt(self, kill: bool) -> float:
        """Ends the broker but leaves its data; returns how many seconds that took."""
        start = time.monotonic()
        if self.process is not None:
            if kill:
                self.process.kill()
                self.process.wait()
            else:
                end_process(self.process)
            self._end_session(self.process)
            self.process = None
        return time.monotonic() - start

    def resume(self) -> None:
        """Starts on the data that is there, and returns at once: the port may not answer yet."""
        self._launch()

    @staticmethod
    def _end_session(process: subprocess.Popen[bytes]) -> None:
        # Helpers that outlive their parent are in the session that we opened for it; the next start
        # must not meet one that still holds the port or the data.
        deadline = time.monotonic() + SESSION_END_S
        with contextlib.suppress(ProcessLookupError):
            while time.monotonic() < deadline:
                os.killpg(process.pid, signal.SIGKILL)
                time.sleep(0.01)

    def config_text(self, listener: str) -> str:
        """A rabbitmq.conf: where to listen, and the settings of this start."""
        lines = {f"listeners.tcp.{listener}": self.endpoint, **self.settings}
        if self.http_port:
            lines["management.tcp.ip"] = "127.0.0.1"
            lines["management.tcp.port"] = str(self.http_port)
        return "".join(f"{key} = {value}\n" for key, value in lines.items())

    def await_port(self) -> None:
        """Returns once the port answers.

        Raises:
            BrokerError: it ended, or did not answer in time.
        """
        deadline = time.monotonic() + READY_TIMEOUT_S
        while time.monotonic() < deadline:
            _ = self.pid
            try:
                socket.create_connection(("127.0.0.1", self.port), 1.0).close()
            except OSError:
                time.sleep(PORT_POLL_S)
            else:
                return
        raise BrokerError(f"{self.name} did not listen within {READY_TIMEOUT_S:.0f} s")

    def stop(self) -> None:
        """Ends the broker and throws its directory away; harmless when it does not run."""
        self.halt(kill=False)
        shutil.rmtree(self.base, ignore_errors=True)

    def restart(self) -> None:
        """A fresh broker, for measurements of memory."""
        self.stop()
        self.start()

    def log_tail(self) -> str:
        """The last words of a broker that failed."""
        log = self.base / "output.log"
        return log.read_text(errors="replace")[-2000:] if log.exists() else ""


class Warren(Broker):
    """Ours, as a developer starts it: in memory."""

    name = "warren"

    def command(self) -> list[str]:
        """The `warren` beside the running Python."""
        program = Path(sys.executable).parent / "warren"
        free = ["--http-port", str(self.http_port), "--metrics-port", "0"]
        return [str(program), "dev", "--host", "127.0.0.1", "--port", str(self.port), *free]

    def environment(self) -> dict[str, str]:
        """Its control socket is with the rest of it."""
        return {"WARREN_RUNTIME_DIR": str(self.base / "run")}

    @staticmethod
    def missing() -> str | None:
        """Why it cannot take part, if it cannot."""
        program = Path(sys.executable).parent / "warren"
        return None if program.exists() else "the warren command is not installed here"


class StoredWarren(Broker):
    """Ours, as an operator starts it: with a configuration and a data directory."""

    name = "warren"
    in_memory = False
    on_disk = True

    def __init__(self, base: Path) -> None:
        super().__init__(base)
        # Beside the other Warren, which has the same name in the tables.
        self.base = base / "warren-stored"

    @property
    def log_directory(self) -> Path:
        """The segments."""
        return self.data_directory / "log"

    def command(self) -> list[str]:
        """The `warren` beside the running Python."""
        config = self.base / "rabbitmq.conf"
        config.write_text(self.config_text("default"))
        program = Path(sys.executable).parent / "warren"
        return [str(program), "serve", "--config", str(config)]

    def environment(self) -> dict[str, str]:
        """Where the data is."""
        return {"WARREN_DATA_DIR": str(self.data_directory)}


def start_epmd(port: int) -> subprocess.Popen[bytes]:
    """Erlang's name daemon, as a process that can be ended."""
    return subprocess.Popen(
        ["epmd", "-address", "127.0.0.1", "-port", str(port)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


class RabbitMQ(Broker):
    """Debian's rabbitmq-server: own node name, ports, home, directories and name daemon."""

    name = "rabbitmq"
    on_disk = True

    def __init__(self, base: Path) -> None:
        super().__init__(base)
        self.epmd: subprocess.Popen[bytes] | None = None
        self.epmd_port = 0

    @staticmethod
    def missing() -> str | None:
        """Why it cannot take part, if it cannot."""
        if RABBITMQ_SCRIPT.exists() and shutil.which("epmd"):
            return None
        return "rabbitmq-server is not installed (Debian: apt-get install rabbitmq-server)"

    def command(self) -> list[str]:
        """The server in the foreground."""
        return [str(RABBITMQ_SCRIPT)]

    def environment(self) -> dict[str, str]:
        """Everything that would otherwise be shared with a RabbitMQ of this machine."""
        config = self.base / "rabbitmq.conf"
        config.write_text(self.config_text("local"))
        (self.base / "rabbitmq-env.conf").touch()
        plugins = "[rabbitmq_management]" if self.http_port else "[]"
        (self.base / "enabled_plugins").write_text(f"{plugins}.\n")
        return {
            "HOME": str(self.base),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(self.epmd_port),
            "RABBITMQ_NODENAME": "bench@localhost",
            "RABBITMQ_DIST_PORT": str(free_port()),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": ("-kernel inet_dist_use_interface {127,0,0,1}"),
            "RABBITMQ_MNESIA_BASE": str(self.data_directory),
            "RABBITMQ_LOG_BASE": str(self.base / "log"),
            "RABBITMQ_PID_FILE": str(self.base / "pid"),
            "RABBITMQ_CONFIG_FILE": str(config),
            "RABBITMQ_CONF_ENV_FILE": str(self.base / "rabbitmq-env.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.base / "enabled_plugins"),
        }

    def start(self) -> None:
        """Starts the name daemon first: the one that Erlang would start detaches itself."""
        self.epmd_port = free_port()
        self.epmd = start_epmd(self.epmd_port)
        super().start()

    def stop(self) -> None:
        """Ends the server, then its name daemon."""
        super().stop()
        if self.epmd is not None:
            end_process(self.epmd)
            self.epmd = None


class Prototype(Broker):
    """The data-plane prototype: no features, no disk; what the compiled path could reach."""

    name = "prototype"
    full = False

    def __init__(self, base: Path, source: Path) -> None:
        super().__init__(base)
        self.source = source
        self.build_directory = base / "prototype-build"

    @staticmethod
    def missing(source: Path) -> str | None:
        """Why it cannot take part, if it cannot."""
        return None if source.is_file() else "its source is not there (name it with --prototype)"

    def command(self) -> list[str]:
        """Compiles on the first start."""
        if not self.build_directory.exists():
            self._build()
        code = f"import hot; hot.serve('127.0.0.1', {self.port})"
        return [sys.executable, "-c", code]

    def environment(self) -> dict[str, str]:
        """Where the compiled module is."""
        return {"PYTHONPATH": str(self.build_directory)}

    def _build(self) -> None:
        self.build_directory.mkdir(parents=True)
        shutil.copy(self.source, self.build_directory / "hot.pyx")
        cythonize = Path(sys.executable).parent / "cythonize"
        built = subprocess.run(
            [str(cythonize), "-i", "-3", "hot.pyx"],
            cwd=self.build_directory,
            env={**os.environ, "CFLAGS": "-O3 -g0"},
            capture_output=True,
            text=True,
            check=False,
        )
        if built.returncode:
            raise BrokerError(f"the prototype does not compile:\n{built.stderr[-2000:]}")
