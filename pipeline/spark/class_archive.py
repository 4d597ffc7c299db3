"""An archive of the classes that Spark's JVM has loaded. The next JVM maps it into memory.

Without an archive, each JVM reads ten thousand classes from 300 jars, parses them and verifies
them. This takes a third of the time of a run over a few events.
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
"""An archive that no JVM has used for so long is of a Java or a Spark that is gone."""

STARTS_BEFORE: Final = 5
"""JVMs that start before one writes an archive that nobody asked for. Writing costs as much as five
starts save, so it pays on a machine whose scheduler starts one every few minutes. It does not pay
in a container that is used once."""
_ARCHIVE_BYTES: Final = 1024**3
"""The free space of the disk before such an archive is written. It takes 200 MB."""

# a class that no archive can hold is no news, and an archive that does not fit is not used
_QUIET: Final = "-Xlog:cds=off -Xlog:cds+dynamic=off"


class ClassArchive:
    """The archive in a folder, for this version of Java and these jars.

    The JVM checks the archive itself: it runs without one that does not fit to it.
    """

    def __init__(self, folder: Path, starts_before: int = 0) -> None:
        """``starts_before`` is how many JVMs start before one writes the archive. Raises OSError if
        the folder cannot be made."""
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder = folder.resolve()
        self.file = folder / f"spark-{_fingerprint()}.jsa"
        self._new = folder / f"{self.file.name}.{os.getpid()}.new"
        self._starts = self.file.with_suffix(".starts")
        """As many bytes as JVMs started without an archive."""
        self.is_missing = not self.file.exists()
        starts = self._starts.stat().st_size if self._starts.exists() else 0
        self.is_written = self.is_missing and starts >= starts_before
        """This JVM writes the archive at its end."""

    def jvm_options(self) -> str:
        """Return the options of a JVM that uses the archive, or writes it. Count the JVM if it does
        neither.
        """
        if self.is_written:
            with suppress(OSError):
                self._starts.unlink(missing_ok=True)  # if it fails, some starts go by again
            return f'"-XX:ArchiveClassesAtExit={self._new}" {_QUIET}'
        with suppress(OSError):
            if self.is_missing:
                with self._starts.open("ab") as file:
                    file.write(b".")
                return ""
            os.utime(self.file)  # it is in use
        return f'"-XX:SharedArchiveFile={self.file}" {_QUIET}'

    def keep(self, jvm: subprocess.Popen[bytes]) -> None:
        """End the JVM, which then writes the archive. Wait for this, and rename the file.

        The file gets its name when it is complete, so no other JVM reads a part of it.
        """
        assert jvm.stdin is not None
        jvm.stdin.close()  # at its end Spark's JVM ends
        try:
            jvm.wait(_LONGEST_S)
        except subprocess.TimeoutExpired:
            return  # the archive is not needed; the next run tries again
        if self._new.exists():
            self._new.replace(self.file)
        self._remove_left_behind()

    def _remove_left_behind(self) -> None:
        """Remove what a killed run has written, and what no JVM uses any more."""
        now = time.time()
        for pattern, age_s in (("spark-*.new", _LEFT_BEHIND_S), ("spark-*", _UNUSED_S)):
            for path in self.file.parent.glob(pattern):
                if path.stat().st_mtime < now - age_s:
                    path.unlink(missing_ok=True)


def usual_archive() -> ClassArchive | None:
    """Return the archive in the user's own cache folder, or None if none can be there.

    A JVM runs the code in its archive, so nobody else may write into the folder.
    """
    try:
        home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        archive = ClassArchive(Path(home, "groupkeeper", "jvm"), STARTS_BEFORE)
        folder = archive.file.parent.stat()
        has_room = shutil.disk_usage(archive.file.parent).free >= _ARCHIVE_BYTES
    except (OSError, RuntimeError):  # RuntimeError: this user has no home
        return None
    is_private = folder.st_uid == os.geteuid() and not folder.st_mode & 0o022
    # an archive extends this one, which not every Java has
    can_extend = (_java_home() / "lib" / "server" / "classes.jsa").exists()
    return archive if is_private and can_extend and (has_room or not archive.is_written) else None


def end_spark(archive: ClassArchive) -> None:
    """If its JVM writes the archive, stop Spark, and keep the classes that the JVM has loaded."""
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
