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
from pathlib import Path
from typing import Any, Final

from pyspark import SparkContext, __version__
from pyspark.find_spark_home import _find_spark_home

_LONGEST_S: Final = 300
"""How long to wait for a JVM that writes its archive."""
_LEFT_BEHIND_S: Final = 3600

# a class that no archive can hold is no news, and an archive that does not fit is not used
_QUIET: Final = "-Xlog:cds=off -Xlog:cds+dynamic=off"


class ClassArchive:
    """The archive in a folder, for this version of Java and these jars.

    The JVM checks the archive itself: it runs without one that does not fit to it.
    """

    def __init__(self, folder: Path) -> None:
        """Raises OSError if the folder cannot be made."""
        folder.mkdir(parents=True, exist_ok=True)
        folder = folder.resolve()
        self._file = folder / f"spark-{_fingerprint()}.jsa"
        self._new = folder / f"{self._file.name}.{os.getpid()}.new"
        self.is_missing = not self._file.exists()

    def jvm_options(self) -> str:
        """Return the options of a JVM that uses the archive, or writes it if there is none."""
        if self.is_missing:
            return f'"-XX:ArchiveClassesAtExit={self._new}" {_QUIET}'
        return f'"-XX:SharedArchiveFile={self._file}" {_QUIET}'

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
            self._new.replace(self._file)
        self._remove_left_behind()

    def _remove_left_behind(self) -> None:
        """Remove what a killed run has written."""
        oldest = time.time() - _LEFT_BEHIND_S
        for path in self._file.parent.glob("spark-*.new"):
            if path.stat().st_mtime < oldest:
                path.unlink(missing_ok=True)


def end_spark(archive: ClassArchive) -> None:
    """If the archive is missing, stop Spark, and keep the classes that its JVM has loaded."""
    spark = SparkContext._active_spark_context
    gateway: Any = SparkContext._gateway
    if spark is None or gateway is None or gateway.proc is None or not archive.is_missing:
        return
    spark.stop()
    gateway.shutdown()
    archive.keep(gateway.proc)


def _fingerprint() -> str:
    """Return a text that changes if Java or the jars of Spark are replaced."""
    home = os.environ.get("JAVA_HOME")
    java = Path(home, "bin", "java") if home else Path(shutil.which("java") or "java")
    jars = Path(_find_spark_home(), "jars")
    known = [__version__, os.environ.get("SPARK_CONF_DIR", "")]
    for path in (java.resolve().parent.parent / "lib" / "modules", jars):
        known += [str(path), str(path.stat().st_mtime_ns) if path.exists() else ""]
    return hashlib.sha256("\n".join(known).encode()).hexdigest()[:16]
