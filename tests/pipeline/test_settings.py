"""Which settings of Spark apply: ours by the size of the input, and the user's before them."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from groupkeeper.pipeline.spark import session
from groupkeeper.pipeline.spark.class_archive import ClassArchive
from groupkeeper.pipeline.spark.session import SMALL_BYTES, our_settings, spark_session
from groupkeeper.pipeline.spark.user_settings import user_settings
from tests.pipeline.restore.conftest import command

SHUFFLE, UI, JVM, MEMORY = (
    "spark.sql.shuffle.partitions",
    "spark.ui.enabled",
    "spark.driver.extraJavaOptions",
    "spark.driver.memory",
)


class FakeSession:
    """A session that keeps its settings."""

    def __init__(self, settings: Mapping[str, str], master: str) -> None:
        self.settings = settings
        self.master = master
        self.sparkContext = self
        self._jvm = None

    def setLogLevel(self, level: str) -> None: ...


class FakeBuilder:
    def __init__(self) -> None:
        self._settings: dict[str, str] = {}
        self._master = ""

    def appName(self, _: str) -> FakeBuilder:
        return self

    def config(self, key: str, value: str) -> FakeBuilder:
        self._settings[key] = value
        return self

    def master(self, master: str) -> FakeBuilder:
        self._master = master
        return self

    def getOrCreate(self) -> FakeSession:
        return FakeSession(self._settings, self._master)


@pytest.fixture
def settings(monkeypatch, tmp_path):
    """Return the settings that a session gets, which is not started."""

    class FakeSpark:
        builder = FakeBuilder()

    monkeypatch.setattr(session, "SparkSession", FakeSpark)
    monkeypatch.setattr(session, "our_settings", our_settings)  # not those of the tests
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    monkeypatch.delenv("PYSPARK_SUBMIT_ARGS", raising=False)
    return lambda **options: spark_session("test", **options).settings


def test_a_small_input_is_interpreted_in_one_part(settings):
    assert settings(input_bytes=SMALL_BYTES - 1)[SHUFFLE] == "1"
    assert "TieredStopAtLevel" in settings(input_bytes=0)[JVM]


@pytest.mark.parametrize("input_bytes", [SMALL_BYTES, None])
def test_a_large_or_unknown_input_is_compiled_in_many_parts(settings, input_bytes):
    found = settings(input_bytes=input_bytes)
    assert found[SHUFFLE] == "16"
    assert "TieredStopAtLevel" not in found[JVM]
    assert "spark.sql.codegen.wholeStage" not in found


def test_a_cluster_has_its_own_jvm_options(settings):
    assert JVM not in settings(master="spark://host:7077", input_bytes=0)


def test_the_archive_of_classes_is_for_a_jvm_that_this_process_starts(
    settings, monkeypatch, tmp_path
):
    archive = ClassArchive(tmp_path)
    assert JVM not in settings(master="spark://host:7077", archive=archive)
    for input_bytes in (0, SMALL_BYTES):
        found = settings(input_bytes=input_bytes, archive=archive)[JVM]
        assert archive.jvm_options() in found
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", f"--conf {JVM}=-Xss4m shell")
    assert settings(archive=archive)[JVM] == "-Xss4m"


def test_settings_of_the_user_win(settings, monkeypatch, tmp_path):
    (tmp_path / "spark-defaults.conf").write_text(
        f"# ours\n\n{SHUFFLE}   7\n{UI}=true\n{MEMORY}: 3g\nspark.app.x  two words\n"
    )
    found = settings(input_bytes=0)
    assert (found[SHUFFLE], found[UI], found[MEMORY]) == ("7", "true", "3g")
    assert found["spark.app.x"] == "two words"
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", f'--conf {SHUFFLE}=8 --conf="{JVM}=-Xss4m" shell')
    found = settings(input_bytes=0)
    assert (found[SHUFFLE], found[JVM], found[UI]) == ("8", "-Xss4m", "true")
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--driver-memory 5g --driver-java-options=-Xa shell")
    found = settings(input_bytes=0)
    assert (found[MEMORY], found[JVM]) == ("5g", "-Xa")
    assert settings(settings={SHUFFLE: "9"})[SHUFFLE] == "9"
    assert settings(driver_memory="4g")[MEMORY] == "4g"


def test_settings_of_spark_submit_win(spark, settings, monkeypatch):
    """A JVM that was started for this process has them as its own."""
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    jvm = spark.sparkContext._jvm
    monkeypatch.setattr("pyspark.SparkContext._ensure_initialized", lambda: None)
    jvm.java.lang.System.setProperty(UI, "true")
    try:
        assert user_settings(is_submitted=True)[UI] == "true"
        found = settings(input_bytes=0)
        assert found[UI] == "true"
        assert found["spark.sql.session.timeZone"] == "UTC"
    finally:
        jvm.java.lang.System.clearProperty(UI)


@pytest.mark.parametrize("given", ["spark.ui.enabled", "=true", ""])
def test_a_setting_without_a_value_is_refused(given, tmp_path):
    said = command("run", "--log-dir", tmp_path, "--conf", given, code=2).err
    assert "is not KEY=VALUE, such as spark.ui.enabled=true" in said
