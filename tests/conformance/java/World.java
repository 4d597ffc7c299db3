import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ClassicGroupDescription;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.ClassicGroupState;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** What a scenario is given: a server, a group of its own, and an administrator. */
final class World implements AutoCloseable {
  /** How long anything is waited for before the scenario fails; nothing is expected to take it. */
  static final int PATIENCE_S = 90;

  final String bootstrap;
  final String group;
  final Admin admin;

  World(String bootstrap, String group) {
    this.bootstrap = bootstrap;
    this.group = group;
    this.admin = Admin.create(Map.of("bootstrap.servers", bootstrap));
  }

  @Override
  public void close() {
    admin.close();
  }

  static void equal(Object got, Object want, String what) {
    if (!Objects.equals(got, want)) {
      throw new AssertionError(what + ": got " + got + ", want " + want);
    }
  }

  static void eventually(String what, Callable<Boolean> holds) throws Exception {
    long giveUp = System.nanoTime() + TimeUnit.SECONDS.toNanos(PATIENCE_S);
    while (!holds.call()) {
      if (System.nanoTime() > giveUp) {
        throw new AssertionError("never came: " + what);
      }
      Thread.sleep(50);
    }
  }

  /** Waits for an answer; what it fails with is thrown bare. */
  static <R> R get(KafkaFuture<R> answer) throws Exception {
    try {
      return answer.get(PATIENCE_S, TimeUnit.SECONDS);
    } catch (ExecutionException failed) {
      throw (Exception) failed.getCause();
    }
  }

  /** What this fails with; not to fail is the failure. */
  static <E extends Exception> E fails(Class<E> kind, Callable<?> deed) {
    try {
      deed.call();
    } catch (Exception thrown) {
      if (kind.isInstance(thrown)) {
        return kind.cast(thrown);
      }
      throw new AssertionError("want " + kind.getSimpleName(), thrown);
    }
    throw new AssertionError("want " + kind.getSimpleName() + ", and it went well");
  }

  /** Creates a topic of the scenario's own. */
  String topic(String suffix, int partitions) throws Exception {
    String topic = group + suffix;
    get(admin.createTopics(List.of(new NewTopic(topic, partitions, (short) 1))).all());
    eventually(topic, () -> get(admin.listTopics().names()).contains(topic));
    return topic;
  }

  /**
   * Lets a partition end at so many records. A broker wants them written; a server that keeps no
   * records refuses them, and lets a partition end where the largest commit says.
   *
   * @return the refusal, if there was one
   */
  Exception grow(TopicPartition partition, int count) throws Exception {
    Map<String, Object> config = Map.of("bootstrap.servers", bootstrap, "enable.idempotence", false);
    ByteArraySerializer bytes = new ByteArraySerializer();
    try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(config, bytes, bytes)) {
      for (int n = 0; n < count; n++) {
        var record =
            new ProducerRecord<byte[], byte[]>(partition.topic(), partition.partition(), null, null);
        producer.send(record).get(PATIENCE_S, TimeUnit.SECONDS);
      }
      return null;
    } catch (ExecutionException failed) {
      return (Exception) failed.getCause();
    }
  }

  Member join(Map<String, ?> settings) {
    return new Member(bootstrap, group, settings);
  }

  static TopicPartition at(String topic, int partition) {
    return new TopicPartition(topic, partition);
  }

  ClassicGroupDescription described() throws Exception {
    return get(admin.describeClassicGroups(List.of(group)).all()).get(group);
  }

  void state(ClassicGroupState state) throws Exception {
    eventually(group + " is " + state, () -> described().state() == state);
  }

  /** What the coordinator has: partition, as topic-number, to offset. */
  Map<String, Long> committed() throws Exception {
    Map<String, Long> found = new TreeMap<>();
    Map<TopicPartition, OffsetAndMetadata> offsets =
        get(admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata());
    offsets.forEach((partition, offset) -> found.put(partition.toString(), offset.offset()));
    return found;
  }

  void setGroupConfig(String key, String value) throws Exception {
    ConfigResource resource = new ConfigResource(ConfigResource.Type.GROUP, group);
    AlterConfigOp set = new AlterConfigOp(new ConfigEntry(key, value), AlterConfigOp.OpType.SET);
    get(admin.incrementalAlterConfigs(Map.of(resource, List.of(set))).all());
  }

  /** Waits until each member holds so many partitions. */
  static void hold(int count, Member... members) throws Exception {
    eventually(
        "each holds " + count,
        () -> {
          for (Member member : members) {
            if (member.failure() != null) {
              throw member.failure();
            }
            if (member.held().size() != count) {
              return false;
            }
          }
          return true;
        });
  }

  static boolean disjoint(Set<String> one, Set<String> two) {
    return one.stream().noneMatch(two::contains);
  }
}
