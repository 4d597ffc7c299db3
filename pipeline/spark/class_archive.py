"""An archive of the Java classes that Spark's JVM has loaded (class data sharing, CDS).

The next JVM maps the archive into memory. Without an archive, each JVM reads ten thousand classes
from 300 jars, parses them and verifies them. This takes a third of the time of a run over a few
events.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from pyspark import SparkContext, __version__
from pyspark.find_spark_home import _find_spark_home

_LONGEST_S: Final = 300
"""How long to wait for a JVM that writes its archive."""
_LEFT_BEHIND_S: Final = 3600
_UNUSED_S: Final = 30 * 86_400
"""An archive that no JVM has used for this time is deleted. It is probably of a version of Java or
Spark that is no longer installed."""

STARTS_BEFORE: Final = 5
"""The number of JVMs that start without an archive before a JVM writes one, if the user did not ask
for an archive. To write it costs as much time as five starts save. This pays on a machine that
starts a JVM every few minutes, but not in a container that is used once."""
_LEAST_FREE_BYTES: Final = 1024**3
"""The free space that the disk must have before an archive is written that the user did not ask
for. An archive has 200 MB."""

# no warnings about classes that no archive can have, or about an archive that does not match
_QUIET: Final = "-Xlog:cds=off -Xlog:cds+dynamic=off"


class ClassArchive:
    """The archive in a folder for the installed Java and Spark.

    The JVM checks whether the archive matches its version and its jars. If not, it ignores the
    archive.
    """

    def __init__(self, folder: Path, starts_before: int = 0) -> None:
        """``starts_before`` is the number of JVMs that start without an archive before a JVM writes
        it. Raises OSError if the folder cannot be created."""
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder = folder.resolve()
        self.file = folder / f"spark-{_fingerprint()}.jsa"
        self._new = folder / f"{self.file.name}.{os.getpid()}.new"
        self._starts = self.file.with_suffix(".starts")
        """A file with one byte for each JVM that started without an archive."""
        self.is_missing = not self.file.exists()
        starts = self._starts.stat().st_size if self._starts.exists() else 0
        self.is_written = self.is_missing and starts >= starts_before
        """True if the JVM of this process writes the archive at its end."""

    def jvm_options(self) -> str:
        """Return the options with which a JVM uses the archive or writes it. If it will do neither,
        return "", and count this start.
        """
        if self.is_written:
            with suppress(OSError):
                self._starts.unlink(missing_ok=True)  # begins to count again
            return f'"-XX:ArchiveClassesAtExit={self._new}" {_QUIET}'
        with suppress(OSError):
            if self.is_missing:
                with self._starts.open("ab") as file:
                    file.write(b".")
                return ""
            os.utime(self.file)  # so it counts as used
        return f'"-XX:SharedArchiveFile={self.file}" {_QUIET}'

    def keep(self, jvm: subprocess.Popen[bytes]) -> None:
        """End the JVM, wait until it has written the archive, and rename the file.

        The file gets its name when it is complete, so no other JVM reads an incomplete archive.
        """
        assert jvm.stdin is not None
        jvm.stdin.close()  # Spark's JVM ends when its stdin is closed
        try:
            jvm.wait(_LONGEST_S)
        except subprocess.TimeoutExpired:
            return  # the archive is not needed; the next run tries again
        if self._new.exists():
            self._new.replace(self.file)
        self._remove_left_behind()

    def _remove_left_behind(self) -> None:
        """Delete unfinished archives of killed runs, and archives that no JVM uses any more."""
        now = time.time()
        for pattern, age_s in (("spark-*.new", _LEFT_BEHIND_S), ("spark-*", _UNUSED_S)):
            for path in self.file.parent.glob(pattern):
                if path.stat().st_mtime < now - age_s:
                    path.unlink(missing_ok=True)


def usual_archive() -> ClassArchive | None:
    """Return the archive in the cache folder of the user.

    Return None if the folder cannot be used, if the disk has no room for a new archive, or if Java
    cannot write archives. Return None as well if others may write to the folder, because a JVM runs
    the code in its archive.
    """
    try:
        home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        archive = ClassArchive(Path(home, "groupkeeper", "jvm"), STARTS_BEFORE)
        folder = archive.file.parent.stat()
        has_room = shutil.disk_usage(archive.file.parent).free >= _LEAST_FREE_BYTES
    except (OSError, RuntimeError):  # RuntimeError: this user has no home
        return None
    is_private = folder.st_uid == os.geteuid() and not folder.st_mode & 0o022
    # an archive extends this one, which not every Java has
    can_extend = (_java_home() / "lib" / "server" / "classes.jsa").exists()
    return archive if is_private and can_extend and (has_room or not archive.is_written) else None


def end_spark(archive: ClassArchive) -> None:
    """Stop Spark and wait for the archive, if the JVM is the one that writes it. Otherwise do
    nothing.
    """
    spark = SparkContext._active_spark_context
    gateway: Any = SparkContext._gateway
    if spark is None or gateway is None or gateway.proc is None or not archive.is_written:
        return
    spark.stop()
    gateway.shutdown()
    archive.keep(gateway.proc)


def _fingerprint() -> str:
    """Return a text that changes if Java or the jars of Spark are replaced."""
    jars = Path(_find_spark_home(), "jars")
    known = [__version__, os.environ.get("SPARK_CONF_DIR", "")]
    for path in (_java_home() / "lib" / "modules", jars):
        known += [str(path), str(path.stat().st_mtime_ns) if path.exists() else ""]
    return hashlib.sha256("\n".join(known).encode()).hexdigest()[:16]


def _java_home() -> Path:
    """Return the folder of the Java that Spark starts."""
    home = os.environ.get("JAVA_HOME")
    java = Path(home, "bin", "java") if home else Path(shutil.which("java") or "java")
    return java.resolve().parent.parent
