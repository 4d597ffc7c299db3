"""Settings: where they come from, and what is refused, in which words."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from groupkeeper.coordinator.daemon.address import HostPort, parse_address
from groupkeeper.coordinator.daemon.config import Settings, absolute_storage_url, shown_storage_url
from groupkeeper.coordinator.daemon.config_load import ConfigError, load_settings
from groupkeeper.coordinator.daemon.setting_names import setting_names, variable_of


@pytest.fixture(autouse=True)
def _no_settings_in_the_environment(monkeypatch):
    for variable in [v for v in os.environ if v.startswith("GROUPKEEPER_")]:
        monkeypatch.delenv(variable)


@pytest.fixture
def write(tmp_path):
    def write_file(text: str) -> Path:
        file = tmp_path / "groupkeeper.toml"
        file.write_text(text)
        return file

    return write_file


def problems_of(file: Path | None) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        load_settings(file)
    return caught.value.problems


def test_without_file_and_environment_everything_is_default():
    loaded = load_settings(None)
    assert loaded.settings == Settings()
    assert set(loaded.origins.values()) == {"default"}
    assert list(loaded.origins) == list(setting_names())


def test_environment_wins_over_file_and_file_over_default(write, monkeypatch):
    file = write('[kafka]\nlisten = "127.0.0.1:1"\nnode_id = 7\n')
    monkeypatch.setenv("GROUPKEEPER_KAFKA__LISTEN", "127.0.0.1:2")
    settings, origins = load_settings(file)
    assert settings.kafka.listen == "127.0.0.1:2"
    assert settings.kafka.node_id == 7
    assert settings.kafka.cluster_id == "groupkeeper"
    assert origins["kafka.listen"] == "GROUPKEEPER_KAFKA__LISTEN"
    assert origins["kafka.node_id"] == str(file)
    assert origins["kafka.cluster_id"] == "default"


def test_the_environment_has_strings_for_everything(write, monkeypatch):
    monkeypatch.setenv("GROUPKEEPER_KAFKA__NODE_ID", "7")
    monkeypatch.setenv("GROUPKEEPER_STATIC__AUTO_CREATE_TOPICS", "yes")
    settings = load_settings(write("[kafka]\nnode_id = 3\n")).settings
    assert settings.kafka.node_id == 7
    assert settings.static.auto_create_topics is True


def test_topics_come_from_the_file(write):
    file = write('[[static.topics]]\nname = "a"\npartitions = 3\nend_offset = 9\n')
    (topic,) = load_settings(file).settings.static.topics
    assert (topic.name, topic.partitions, topic.end_offset) == ("a", 3, 9)


def test_topics_come_from_the_environment_as_json(monkeypatch):
    monkeypatch.setenv("GROUPKEEPER_STATIC__TOPICS", '[{"name": "a", "partitions": 3}]')
    settings, origins = load_settings(None)
    assert settings.static.topics[0].name == "a"
    assert origins["static.topics"] == "GROUPKEEPER_STATIC__TOPICS"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[kafka]\nlistn = 1\n", "kafka.listn: no such key; did you mean listen?"),
        ("[kafak]\nlisten = 1\n", "kafak: no such section; did you mean kafka?"),
        ("[kafka]\nnode_id = 'x'\n", "kafka.node_id: input should be a valid integer"),
        ("[kafka]\nnode_id = '7'\n", "kafka.node_id: input should be a valid integer (it is '7')"),
        ("[kafka]\nnode_id = 7.0\n", "kafka.node_id: input should be a valid integer"),
        ("[kafka]\nnode_id = true\n", "kafka.node_id: input should be a valid integer"),
        (
            "[static]\nauto_create_topics = 'yes'\n",
            "static.auto_create_topics: input should be a valid boolean (it is 'yes')",
        ),
        ("[static]\nauto_create_topics = 1\n", "static.auto_create_topics: input should be"),
        (
            "[[static.topics]]\nname = 'a'\npartitions = '3'\n",
            "static.topics.0.partitions: input should be a valid integer (it is '3')",
        ),
        ("[kafka]\nnode_id = -1\n", "kafka.node_id: must be at least 0, not -1"),
        ("[kafka]\nlisten = '9092'\n", "kafka.listen: '9092' is not HOST:PORT"),
        ("[kafka]\nadvertised = 'h:0'\n", "kafka.advertised: clients cannot connect to port 0"),
        ("[logging]\nlevel = 'loud'\n", "logging.level: input should be 'debug', 'info'"),
        ("kafka = 3\n", "kafka: input should be a valid dictionary"),
        ("[[static.topics]]\nname = 'a'\n", "static.topics.0.partitions: Field required"),
        (
            "[[static.topics]]\nname = 'a'\npartitions = 1\nend = 3\n",
            "static.topics.0.end: no such key; did you mean end_offset?",
        ),
        (
            "[static]\ntopics = [{name='a', partitions=1}, {name='a', partitions=2}]\n",
            "static: topic 'a' is listed twice",
        ),
        (
            "[static]\ntopics = [{name='a.b', partitions=1}, {name='a_b', partitions=2}]\n",
            "static: topic 'a_b' collides with topic 'a.b' in metrics",
        ),
        (
            "[[static.topics]]\nname = '__consumer_offsets'\npartitions = 50\n",
            "static.topics.0.name: __consumer_offsets is the name of one of Kafka's own topics",
        ),
        ("[kafka\n", "not valid TOML"),
    ],
)
def test_a_wrong_file_is_refused_in_one_line_that_names_file_and_key(write, text, problem):
    file = write(text)
    (line,) = problems_of(file)
    assert line.startswith(f"{file}: {problem}")
    assert "\n" not in line


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[kafka]\nworkers = 2\n", "kafka.workers: no such key"),
        (
            "[downstream]\nbootstrap = ['h:1']\n",
            "downstream: no such section",
        ),
        (
            '[upstream]\nbootstrap = "h:1"\n[[static.topics]]\nname = "t"\npartitions = 1\n',
            "upstream.bootstrap is set, so topics are those of the upstream cluster",
        ),
        (
            '[upstream]\nbootstrap = "h:1"\nports = "9000-9999"\n',
            "upstream.ports (9000-9999) must not have the port of kafka.listen",
        ),
        (
            '[kafka]\nlisten = "h:1"\n[upstream]\nbootstrap = "g:1,h:1"\n',
            "upstream.bootstrap has kafka.listen (h:1): name the brokers",
        ),
        (
            '[upstream]\nbootstrap = "h:1"\njournal_topic = "a b"\n',
            "upstream.journal_topic: Topic name is invalid: only ASCII letters",
        ),
        (
            '[upstream]\nbootstrap = "h:1"\njournal_topic = "__consumer_offsets"\n',
            "upstream.journal_topic: __consumer_offsets belongs to the brokers",
        ),
        (
            '[upstream]\nbootstrap = "h:1"\nsasl = "PLAIN"\n',
            "upstream: upstream.sasl needs upstream.user and upstream.password_file",
        ),
        (
            '[upstream]\nbootstrap = "h:1"\nuser = "gate"\n',
            "upstream: upstream.user is set, and has no effect without upstream.sasl: set "
            "upstream.sasl too, or remove upstream.user",
        ),
        (
            '[upstream]\nbootstrap = "h:1"\npassword_file = "f"\n',
            "upstream: upstream.password_file is set, and has no effect without upstream.sasl",
        ),
        (
            '[upstream]\nbootstrap = "h:1"\nca_file = "ca.pem"\n',
            "upstream: upstream.ca_file is set, and has no effect without upstream.tls",
        ),
        (
            '[upstream]\nbootstrap = "h:1"\ncert_file = "us.pem"\n',
            "upstream: upstream.cert_file is set, and has no effect without upstream.tls",
        ),
        (
            '[upstream]\nbootstrap = "h:1"\ntls = true\nkey_file = "us.key"\n',
            "upstream: upstream.key_file is set, and has no effect without upstream.cert_file",
        ),
        (
            '[upstream]\nbootstrap = "h:1"\nidentity = "client"\n',
            'upstream: upstream.identity = "client" needs upstream.sasl',
        ),
        (
            "[storage]\nappend_timeout_ms = 6000\n",
            "storage.append_timeout_ms (6000) must be below group.min_session_timeout_ms (6000)",
        ),
        (
            "[group]\nmax_session_timeout_ms = 5999\n",
            "group.min_session_timeout_ms (6000) is above group.max_session_timeout_ms (5999)",
        ),
    ],
)
def test_settings_that_do_not_fit_together_are_refused_in_one_line(write, text, problem):
    file = write(text)
    (line,) = problems_of(file)
    assert line.startswith(f"{file}: {problem}")
    assert "\n" not in line


def test_settings_of_the_environment_that_do_not_fit_together_are_not_those_of_the_file(
    write, monkeypatch
):
    monkeypatch.setenv("GROUPKEEPER_STORAGE__APPEND_TIMEOUT_MS", "6000")
    (line,) = problems_of(write("[kafka]\nnode_id = 2\n"))
    assert line.startswith("storage.append_timeout_ms (6000) must be below")


@pytest.mark.parametrize(
    ("variable", "value", "problem"),
    [
        ("GROUPKEEPER_KAFKA__LISTN", "x", "not a setting; did you mean GROUPKEEPER_KAFKA__LISTEN?"),
        ("GROUPKEEPER_KAFKA_LISTEN", "x", "not a setting; did you mean GROUPKEEPER_KAFKA__LISTEN?"),
        ("GROUPKEEPER_KAFKA__NODE_ID", "x", "input should be a valid integer"),
        ("GROUPKEEPER_STATIC__TOPICS", "orders", "not valid JSON"),
        ("GROUPKEEPER_STATIC", "[", "not valid JSON"),
    ],
)
def test_a_wrong_variable_is_refused_by_its_name(monkeypatch, variable, value, problem):
    monkeypatch.setenv(variable, value)
    (line,) = problems_of(None)
    assert line.startswith(f"{variable}: {problem}")


def test_variables_that_kubernetes_sets_beside_a_service_of_our_name_are_left_alone(monkeypatch):
    monkeypatch.setenv("GROUPKEEPER_PORT", "tcp://10.0.0.1:9092")
    monkeypatch.setenv("GROUPKEEPER_PORT_9092_TCP_ADDR", "10.0.0.1")
    monkeypatch.setenv("GROUPKEEPER_SERVICE_HOST", "10.0.0.1")
    assert load_settings(None).settings == Settings()


def test_all_problems_are_told_at_once(write):
    lines = problems_of(write("[kafka]\nlistn = 1\nnode_id = 'x'\n[htpp]\n"))
    assert len(lines) == 3


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("missing.toml", "no such file; name an existing one with --config"),
        ("", "cannot be read (Is a directory); name the file in it with --config"),
        ("a.toml/b.toml", "cannot be read (Not a directory); name a readable file"),
        ("latin1.toml", "not UTF-8 at byte 2; save it in that encoding"),
        ("deep.toml", "brackets are nested too deeply"),
        ("digits.toml", "not valid TOML: Exceeds the limit"),
    ],
)
def test_a_file_that_cannot_be_read_is_told_with_what_to_do(tmp_path, name, problem):
    (tmp_path / "a.toml").touch()
    (tmp_path / "latin1.toml").write_bytes("# é\n".encode("latin-1"))
    (tmp_path / "deep.toml").write_text("a = " + "[" * 10_000)
    (tmp_path / "digits.toml").write_text("a = " + "1" * 5_000)
    file = tmp_path / name
    (line,) = problems_of(file)
    assert line.startswith(f"{file}: {problem}")


def test_the_environment_may_say_a_section_in_json_and_a_key_of_it(write, monkeypatch):
    monkeypatch.setenv("GROUPKEEPER_KAFKA", '{"node_id": 5, "cluster_id": "a"}')
    monkeypatch.setenv("groupkeeper_kafka__node_id", "6")
    settings, origins = load_settings(write("[kafka]\ncluster_id = 'b'\nmax_connections = 9\n"))
    assert (settings.kafka.node_id, settings.kafka.cluster_id) == (6, "a")
    assert settings.kafka.max_connections == 9
    assert origins["kafka.node_id"] == "GROUPKEEPER_KAFKA__NODE_ID"


def test_variable_names_follow_section_and_key():
    assert variable_of("storage.append_timeout_ms") == "GROUPKEEPER_STORAGE__APPEND_TIMEOUT_MS"


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:9092", HostPort("127.0.0.1", 9092)),
        ("kafka.example:1", HostPort("kafka.example", 1)),
        ("[::1]:9092", HostPort("::1", 9092)),
    ],
)
def test_addresses_are_read_and_printed_alike(text, address):
    assert parse_address(text) == address
    assert str(address) == text


@pytest.mark.parametrize(
    "text", ["", "9092", ":9092", "host", "host:", "host:x", "h:65536", "::1:1"]
)
def test_what_is_no_address_is_refused(text):
    with pytest.raises(ValueError, match="is not HOST:PORT"):
        parse_address(text)


def test_relative_sqlite_paths_are_made_whole_against_the_working_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert absolute_storage_url("sqlite:///a/b.db") == f"sqlite:///{tmp_path}/a/b.db"
    assert absolute_storage_url("sqlite:////var/b.db") == "sqlite:////var/b.db"
    assert absolute_storage_url("memory:") == "memory:"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("memory:", "memory:"),
        ("sqlite:////a:b@c.db", "sqlite:////a:b@c.db"),
        ("postgresql://me:hu:sh@db/groups?schema=s", "postgresql://me:***@db/groups?schema=s"),
        (
            "postgresql://me@db/groups?password=hush&x=1",
            "postgresql://me@db/groups?password=***&x=1",
        ),
        ("postgresql://db/g?sslpassword=hush", "postgresql://db/g?sslpassword=***"),
        ("zookeeper://me:hu@sh@a:2181,b:2181/c", "zookeeper://me:***@a:2181,b:2181/c"),
        ("zookeeper://me@a:2181,b:2181/c", "zookeeper://me@a:2181,b:2181/c"),
    ],
)
def test_no_password_of_a_store_is_shown(url: str, shown: str) -> None:
    assert shown_storage_url(url) == shown


@pytest.mark.parametrize(
    ("text", "node_id"),
    [
        ("", 1),
        ("[kafka]\nnode_id = 7\n", 7),
        ('[upstream]\nbootstrap = "h:1"\n', 1_000_000),
        ('[kafka]\nnode_id = 1\n[upstream]\nbootstrap = "h:1"\n', 1),
    ],
)
def test_our_own_node_has_a_large_id_in_gateway_mode_unless_it_is_set(write, text, node_id):
    assert load_settings(write(text)).settings.node_id == node_id


@pytest.mark.parametrize(
    "ports", ["", "9100", "0-5", "9200-9100", "1-70000", "a-b", "9100-9200-9300"]
)
def test_a_range_of_ports_is_two_numbers_in_order(write, ports):
    file = write(f'[upstream]\nports = "{ports}"\n')
    if ports == "9100":
        assert load_settings(file).settings.upstream.ports == "9100"
    else:
        assert "upstream.ports" in problems_of(file)[0]
