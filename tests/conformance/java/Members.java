import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * KafkaConsumers as members for a test, of both protocols, each polled by a thread of its own.
 *
 * <p>Started with HOST:PORT. The lines that it reads and writes are those of
 * tests/helpers/clients/member_host.py.
 */
public final class Members {
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final PrintStream EVENTS = System.out;
  private static final Map<String, Polled> MEMBERS = new HashMap<>();

  public static void main(String[] arguments) throws Exception {
    System.setOut(System.err); // whatever else prints must not print between the events
    var commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = commands.readLine(); line != null; line = commands.readLine()) {
      JsonNode command = JSON.readTree(line);
      String name = command.get("name").asText();
      if (command.get("op").asText().equals("join")) {
        MEMBERS.put(name, new Polled(arguments[0], command));
      } else {
        MEMBERS.get(name).orders.add(command);
      }
    }
    Runtime.getRuntime().halt(0); // members at work are not waited for
  }

  private static long now() {
    Instant now = Instant.now();
    return now.getEpochSecond() * 1_000_000_000L + now.getNano();
  }

  private static synchronized void emit(String name, String event, Object... values) {
    Map<String, Object> line = new LinkedHashMap<>();
    line.put("name", name);
    line.put("event", event);
    line.put("at_ns", now());
    for (int n = 0; n < values.length; n += 2) {
      line.put((String) values[n], values[n + 1]);
    }
    try {
      EVENTS.println(JSON.writeValueAsString(line));
      EVENTS.flush();
    } catch (Exception failure) {
      throw new AssertionError(failure);
    }
  }

  private static List<List<Object>> listed(Collection<TopicPartition> partitions) {
    return partitions.stream().map(each -> List.<Object>of(each.topic(), each.partition())).toList();
  }

  private static Map<String, Long> named(Map<TopicPartition, Long> offsets) {
    Map<String, Long> named = new TreeMap<>();
    offsets.forEach((each, offset) -> named.put(each.topic() + ":" + each.partition(), offset));
    return named;
  }

  private static Map<TopicPartition, Long> pairs(JsonNode offsets) {
    Map<TopicPartition, Long> pairs = new HashMap<>();
    offsets.properties().forEach(
        entry -> {
          int colon = entry.getKey().lastIndexOf(':');
          int number = Integer.parseInt(entry.getKey().substring(colon + 1));
          pairs.put(new TopicPartition(entry.getKey().substring(0, colon), number), entry.getValue().asLong());
        });
    return pairs;
  }

  private static final class Polled implements ConsumerRebalanceListener, Runnable {
    final Queue<JsonNode> orders = new ConcurrentLinkedQueue<>();
    private final String name;
    private final JsonNode command;
    private final String bootstrap;
    private final Set<TopicPartition> held = new java.util.HashSet<>();
    private final Map<TopicPartition, Long> positions = new HashMap<>();
    private KafkaConsumer<byte[], byte[]> consumer;
    private double rate;
    private long due;
    private boolean leaving;

    Polled(String bootstrap, JsonNode command) {
      this.bootstrap = bootstrap;
      this.command = command;
      this.name = command.get("name").asText();
      Thread thread = new Thread(this, name);
      thread.setDaemon(true);
      thread.start();
    }

    private Map<String, Object> settings() {
      Map<String, Object> settings = new HashMap<>();
      settings.put("bootstrap.servers", bootstrap);
      settings.put("client.id", name);
      settings.put("group.id", command.get("group").asText());
      settings.put("enable.auto.commit", "false");
      settings.put("auto.offset.reset", "earliest");
      settings.put("fetch.max.wait.ms", "200");
      settings.put("metadata.max.age.ms", "1000");
      settings.put("reconnect.backoff.max.ms", "500");
      String protocol = command.path("protocol").asText("classic");
      settings.put("group.protocol", protocol);
      if (protocol.equals("classic")) {
        boolean cooperative = command.path("assignor").asText().equals("cooperative-sticky");
        String assignor = cooperative ? "CooperativeStickyAssignor" : "RangeAssignor";
        settings.put("partition.assignment.strategy", "org.apache.kafka.clients.consumer." + assignor);
        settings.put("session.timeout.ms", command.path("session_ms").asText("10000"));
        settings.put("heartbeat.interval.ms", command.path("heartbeat_ms").asText("500"));
      }
      if (command.path("instance").isTextual()) {
        settings.put("group.instance.id", command.get("instance").asText());
      }
      command
          .path("settings")
          .fields()
          .forEachRemaining(each -> settings.put(each.getKey(), each.getValue().asText()));
      return settings;
    }

    private void subscribe() {
      String first = command.get("topics").get(0).asText();
      if (!first.startsWith("^")) {
        List<String> topics = new ArrayList<>();
        command.get("topics").forEach(topic -> topics.add(topic.asText()));
        consumer.subscribe(topics, this);
      } else if (command.path("protocol").asText().equals("consumer")) {
        consumer.subscribe(new SubscriptionPattern(first), this);
      } else {
        consumer.subscribe(Pattern.compile(first), this);
      }
    }

    @Override
    public void run() {
      try {
        var bytes = new ByteArrayDeserializer();
        consumer = new KafkaConsumer<>(settings(), bytes, bytes);
        subscribe();
        while (!leaving) {
          consumer.poll(Duration.ofMillis(20));
          for (JsonNode order = orders.poll(); order != null; order = orders.poll()) {
            obey(order);
          }
          load();
        }
        consumer.close();
      } catch (RuntimeException failure) {
        emit(name, "failed", "error", failure.getClass().getSimpleName(), "message", "" + failure.getMessage());
      }
      emit(name, "ended");
    }

    private void obey(JsonNode order) {
      String op = order.get("op").asText();
      switch (op) {
        case "leave" -> leaving = true;
        case "load" -> rate = order.get("rate").asDouble();
        default -> {
          int tag = order.get("tag").asInt();
          try {
            emit(name, op, "ok", true, "tag", tag, "result", result(op, order));
          } catch (RuntimeException failure) {
            String kind = failure.getClass().getSimpleName();
            emit(name, op, "ok", false, "tag", tag, "error", kind, "message", "" + failure.getMessage());
          }
        }
      }
    }

    private Object result(String op, JsonNode order) {
      switch (op) {
        case "commit":
          Map<TopicPartition, Long> offsets = pairs(order.get("offsets"));
          commit(offsets);
          return named(offsets);
        case "committed":
          return named(committed(held, -1001L));
        case "identity":
          var mine = consumer.groupMetadata();
          return Map.of("member_id", mine.memberId(), "generation", mine.generationId());
        default:
          throw new IllegalArgumentException(op);
      }
    }

    private void commit(Map<TopicPartition, Long> offsets) {
      consumer.commitSync(
          offsets.entrySet().stream()
              .collect(Collectors.toMap(Map.Entry::getKey, each -> new OffsetAndMetadata(each.getValue()))));
    }

    private Map<TopicPartition, Long> committed(Set<TopicPartition> partitions, long absent) {
      Map<TopicPartition, OffsetAndMetadata> found = consumer.committed(partitions);
      Map<TopicPartition, Long> offsets = new HashMap<>();
      for (TopicPartition each : partitions) {
        OffsetAndMetadata there = found.get(each);
        offsets.put(each, there == null ? absent : there.offset());
      }
      return offsets;
    }

    /** Goes on, in each partition, from what the group has committed there. */
    private void load() {
      if (rate == 0 || held.isEmpty()) {
        return;
      }
      try {
        Set<TopicPartition> fresh = new java.util.HashSet<>(held);
        fresh.removeAll(positions.keySet());
        if (!fresh.isEmpty()) {
          long asked = now();
          Map<TopicPartition, Long> found = committed(fresh, 0L);
          positions.putAll(found);
          emit(name, "resumed", "asked_ns", asked, "offsets", named(found));
        }
        if (now() < due) {
          return;
        }
        due = now() + (long) (1e9 / rate);
        positions.replaceAll((each, offset) -> offset + 1);
        Map<TopicPartition, Long> next = new HashMap<>(positions);
        emit(name, "committing", "offsets", named(next));
        commit(next);
        emit(name, "acknowledged", "offsets", named(next));
      } catch (RuntimeException failure) {
        emit(name, "unacknowledged", "error", failure.getClass().getSimpleName());
      }
    }

    private List<List<Object>> everything() {
      Set<TopicPartition> sorted =
          new TreeSet<>((a, b) -> (a.topic() + (1000 + a.partition())).compareTo(b.topic() + (1000 + b.partition())));
      sorted.addAll(held);
      return listed(sorted);
    }

    @Override
    public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
      held.addAll(partitions);
      emit(name, "assigned", "partitions", everything(), "gained", listed(partitions));
    }

    @Override
    public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
      giveUp(partitions);
      emit(name, "revoked", "partitions", everything(), "revoked", listed(partitions));
    }

    @Override
    public void onPartitionsLost(Collection<TopicPartition> partitions) {
      giveUp(partitions);
      emit(name, "lost", "partitions", everything(), "lost", listed(partitions));
    }

    private void giveUp(Collection<TopicPartition> partitions) {
      held.removeAll(partitions);
      positions.keySet().removeAll(partitions);
    }
  }
}
