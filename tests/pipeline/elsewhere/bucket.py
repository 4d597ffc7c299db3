"""A bucket in moto's server, which speaks S3."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Final, Self

from pyarrow import fs

from tests.helpers.clients.ecosystem import jars_of, once, run
from tests.pipeline.elsewhere.process import started

HERE: Final = Path(__file__).parent
KEY, SECRET, REGION = "key", "secret", "us-east-1"


def moto() -> Path:
    """Return the folder with moto's packages; pip fetches them once."""
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    needs = HERE / "moto.txt"

    def install(place: Path) -> None:
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "install"]
        without = {key: value for key, value in os.environ.items() if key != "PIP_CONSTRAINT"}
        run([*pip, "--no-deps", "--target", str(place), "-r", str(needs)], env=without)

    return once(f"moto-{python}", [needs], install)


def jars() -> Path:
    """Return the folder with the jars of S3A; Maven fetches them once. Raises Unavailable."""
    return jars_of("s3a-jars", HERE / "s3a.xml")


class Bucket:
    """A bucket, which ends with its server."""

    NAME = "data"
    ADDRESS = f"s3a://{NAME}"

    def __init__(self, folder: Path) -> None:
        self._log = folder / "moto.log"
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        command = [sys.executable, "-c", "from moto.server import main; main()"]
        environment = os.environ | {"PYTHONPATH": str(moto()), "PYTHONUNBUFFERED": "1"}
        where = ["-H", "127.0.0.1", "-p", "0"]
        says = r"Running on (http://127\.0\.0\.1:\d+)"
        self.url = started(self._stack, self._log, [*command, *where], environment, says)
        self._s3 = fs.S3FileSystem(
            access_key=KEY,
            secret_key=SECRET,
            region=REGION,
            endpoint_override=self.url,
            allow_bucket_creation=True,
        )
        self._s3.create_dir(self.NAME)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def put(self, folder: Path | str, below: str) -> None:
        """Copy a folder into the bucket."""
        fs.copy_files(str(folder), f"{self.NAME}/{below}", destination_filesystem=self._s3)

    def get(self, below: str, folder: Path) -> None:
        """Copy from the bucket into a folder."""
        fs.copy_files(f"{self.NAME}/{below}", str(folder), source_filesystem=self._s3)

    def settings(self) -> dict[str, str]:
        """Return the settings of Spark with which it uses the bucket."""
        return {
            "spark.driver.extraClassPath": f"{jars()}/*",
            "spark.hadoop.fs.s3a.endpoint": self.url,
            "spark.hadoop.fs.s3a.endpoint.region": REGION,
            "spark.hadoop.fs.s3a.path.style.access": "true",
            "spark.hadoop.fs.s3a.access.key": KEY,
            "spark.hadoop.fs.s3a.secret.key": SECRET,
        }
