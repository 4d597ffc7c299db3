"""What is shipped for servers agrees with the code: the unit, the image and its settings."""

from __future__ import annotations

import configparser
import re
import shutil
import subprocess
import textwrap

from groupkeeper.coordinator.daemon.address import parse_address
from groupkeeper.coordinator.daemon.config import Settings
from groupkeeper.coordinator.daemon.config_load import load_settings
from groupkeeper.coordinator.daemon.process import SPARE_FILES
from groupkeeper.coordinator.daemon.upstream_settings import parse_ports
from tests.helpers.printed.printed_docs import ROOT

UNIT = ROOT / "deploy" / "groupkeeper.service"
DOCKERFILE = (ROOT / "Dockerfile").read_text()


def unit() -> configparser.RawConfigParser:
    parser = configparser.RawConfigParser(strict=False)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(UNIT)
    return parser


def seconds(text: str) -> int:
    number, what = re.fullmatch(r"(\d+)(s|min)", text).groups()
    return int(number) * {"s": 1, "min": 60}[what]


def test_the_unit_grants_what_the_default_settings_need():
    service, settings = unit()["Service"], Settings()
    assert seconds(service["TimeoutStopSec"]) * 1000 > settings.daemon.drain_timeout_ms
    assert int(service["LimitNOFILE"]) >= (
        settings.kafka.max_connections + settings.http.max_connections + SPARE_FILES
    )
    assert service["Type"] == "notify"
    assert service["Restart"] == "on-failure"


def test_the_process_that_seals_may_lower_its_priority_under_the_unit():
    """``~@resources`` takes setpriority away, and os.nice() then fails without a word."""
    assert "SystemCallFilter=setrlimit prlimit64 setpriority" in UNIT.read_text().splitlines()


def test_the_unit_keeps_its_store_where_systemd_lets_it_write():
    service = unit()["Service"]
    assert service["WorkingDirectory"] == f"/var/lib/{service['StateDirectory']}"
    assert service["ProtectSystem"] == "strict"
    assert service["DynamicUser"] == "yes"


def test_the_unit_is_one_that_systemd_reads(tmp_path):
    """Where there is no systemd, every line must still be a section, a comment or a setting."""
    lines = UNIT.read_text().splitlines()
    assert [n for n in lines if not re.fullmatch(r"|#.*|\[\w+\]|[A-Z]\w+=.*", n)] == []
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        return
    program = shutil.which("true")
    copy = tmp_path / UNIT.name  # systemd also looks whether the program is there
    copy.write_text(re.sub(r"(?<=^ExecStart=)\S+", program, UNIT.read_text(), flags=re.MULTILINE))
    done = subprocess.run(
        [analyze, "verify", "--man=no", copy], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert UNIT.name not in done.stderr


def test_the_image_listens_to_its_network_and_writes_only_into_its_volume():
    settings = load_settings(ROOT / "deploy" / "image.toml").settings
    (volume,) = re.findall(r"^VOLUME (\S+)$", DOCKERFILE, re.MULTILINE)
    assert settings.kafka.listen == "0.0.0.0:9092"
    assert settings.http.listen == "0.0.0.0:9308"
    assert settings.storage.url.startswith(f"sqlite:///{volume}/")
    assert settings.log.dir.startswith(f"{volume}/")
    assert re.findall(r"^EXPOSE (.*)$", DOCKERFILE, re.MULTILINE) == ["9092 9308"]


def test_the_image_is_built_from_files_that_are_there_and_sent_to_the_engine():
    copied = [
        source
        for line in re.findall(r"^COPY (?!--from)(.*)$", DOCKERFILE, re.MULTILINE)
        for source in line.split()[:-1]
    ]
    assert len(copied) > 5
    assert [name for name in copied if not (ROOT / name).exists()] == []
    allowed = re.findall(r"^!(\S+)$", (ROOT / ".dockerignore").read_text(), re.MULTILINE)
    assert set(copied) == set(allowed)


def test_the_image_runs_as_nobody_special_and_checks_itself_with_our_own_command():
    assert re.findall(r"^USER (\w+)$", DOCKERFILE, re.MULTILINE) == ["groupkeeper"]
    assert '"groupkeeper", "health"' in DOCKERFILE


def test_the_manifest_of_a_gateway_has_valid_settings_and_a_port_for_each_broker(tmp_path):
    manifest = (ROOT / "deploy" / "gateway.yaml").read_text()
    block = re.search(r"  config\.toml: \|\n((?:    .*\n|\n)+)", manifest)[1]
    path = tmp_path / "config.toml"
    path.write_text(textwrap.dedent(block))
    settings = load_settings(path).settings
    ports = [parse_address(settings.kafka.listen).port, *parse_ports(settings.upstream.ports)]
    ports.append(parse_address(settings.http.listen).port)
    assert re.findall(r"- \{name: [\w-]+, port: (\d+)\}", manifest) == [str(p) for p in ports]
    assert re.findall(r"- containerPort: (\d+)", manifest) == [str(port) for port in ports]
    assert "replicas: 1\n" in manifest  # one process serves a store


ALERTS = (ROOT / "deploy" / "alerts.yaml").read_text()
NAME = re.compile(r"\b[a-z]+(?:_[a-z]+)+\b")
OF_THE_PIPELINE = {"groupkeeper_incidents_open", "groupkeeper_incidents_as_of_timestamp_seconds"}


def metrics() -> dict[str, str]:
    """Return the advice on each metric of the daemon."""
    page = (ROOT / "docs" / "reference" / "metrics.md").read_text()
    return dict(re.findall(r"^\| `(groupkeeper_\w+).*\| (.*) \|$", page, re.MULTILINE))


def test_the_alerts_name_metrics_that_there_are():
    found = set(re.findall(r"\bgroupkeeper_\w+", ALERTS))
    assert len(found) > 20
    assert {name.removesuffix("_bucket") for name in found} <= {*metrics(), *OF_THE_PIPELINE}


def test_each_metric_whose_page_advises_an_alert_has_one():
    advised = {name for name, use in metrics().items() if re.match("Alert|Must be 0", use)}
    assert len(advised) > 10
    assert [name for name in sorted(advised) if name not in ALERTS] == []


def test_the_advice_of_alerts_names_log_lines_settings_and_metrics_that_there_are():
    pages = [(ROOT / "docs" / "reference" / name).read_text() for name in REFERENCES]
    known = {word for page in pages for word in NAME.findall(page)}
    advice = "".join(re.findall(r"^ +(?:summary|do): (.*)$", ALERTS, re.MULTILINE))
    assert sorted(set(NAME.findall(advice)) - known) == []


REFERENCES = ("log-lines.md", "settings.md", "metrics.md", "events.md")


def test_prometheus_fires_the_alerts_when_it_should():
    promtool = shutil.which("promtool")  # of Debian's package prometheus
    if promtool is not None:
        rules = ROOT / "tests" / "house" / "alerts_test.yaml"
        subprocess.run([promtool, "test", "rules", rules], check=True, capture_output=True)
