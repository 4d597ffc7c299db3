import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.regex.Pattern;
import org.apache.kafka.clients.admin.RemoveMembersFromConsumerGroupOptions;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.ClassicGroupState;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.FencedInstanceIdException;
import org.apache.kafka.common.errors.InvalidCommitOffsetSizeException;
import org.apache.kafka.common.errors.PolicyViolationException;

/** Lives of KafkaConsumer in the classic protocol. */
final class Consumers {
  private static final String ASSIGNOR = "partition.assignment.strategy";
  private static final Map<String, String> RANGE =
      Map.of(ASSIGNOR, "org.apache.kafka.clients.consumer.RangeAssignor");
  private static final Map<String, String> COOPERATIVE =
      Map.of(ASSIGNOR, "org.apache.kafka.clients.consumer.CooperativeStickyAssignor");

  private Consumers() {}

  static void addTo(Map<String, Host.Life> lives) {
    lives.put("java-consumer/range", Consumers::range);
    lives.put("java-consumer/cooperative-sticky", Consumers::cooperativeSticky);
    lives.put("java-consumer/static-member", Consumers::staticMember);
    lives.put("java-consumer/fenced-instance", Consumers::fencedInstance);
    lives.put("java-consumer/pattern", Consumers::pattern);
    lives.put("java-consumer/commits", Consumers::commits);
    lives.put("java-consumer/evicted", Consumers::evicted);
    lives.put("java-consumer/offsets-of-topics", Consumers::offsetsOfTopics);
    lives.put("java-consumer/monotonic-commit", Consumers::monotonicCommit);
    lives.put("java-producer/refused", Consumers::producerRefused);
  }

  private static Void commit(KafkaConsumer<?, ?> consumer, TopicPartition partition, long offset) {
    consumer.commitSync(Map.of(partition, new OffsetAndMetadata(offset, "")));
    return null;
  }

  private static ConsumerGroupMetadata identity(Member member) throws Exception {
    return member.call(KafkaConsumer::groupMetadata);
  }

  private static void range(World world) throws Exception {
    String topic = world.topic("", 5);
    Member one = world.join(RANGE).subscribe(topic);
    World.hold(5, one);
    Member two = world.join(RANGE).subscribe(topic);
    World.eventually("shared", () -> one.held().size() + two.held().size() == 5 && !two.held().isEmpty());
    World.equal(World.disjoint(one.held(), two.held()), true, "disjoint");
    World.equal(world.described().protocolData(), "range", "assignor");
    World.equal(world.described().members().size(), 2, "members");
    TopicPartition mine = World.at(topic, 0);
    Member owner = one.held().contains(mine.toString()) ? one : two;
    world.grow(mine, 3);
    owner.call(consumer -> commit(consumer, mine, 3));
    one.leave();
    World.hold(5, two);
    two.leave();
    world.state(ClassicGroupState.EMPTY);
    Member back = world.join(RANGE).subscribe(topic);
    World.hold(5, back);
    World.equal(back.call(consumer -> consumer.position(mine)), 3L, "place to go on from");
    back.leave();
  }

  private static void cooperativeSticky(World world) throws Exception {
    String topic = world.topic("", 6);
    Member one = world.join(COOPERATIVE).subscribe(topic);
    World.hold(6, one);
    Member two = world.join(COOPERATIVE).subscribe(topic);
    World.hold(3, one, two);
    World.equal(new TreeSet<>(one.revoked()), two.held(), "what the first gave up");
    World.equal(one.revoked().size(), 3, "each moved once");
    World.equal(world.described().protocolData(), "cooperative-sticky", "assignor");
    one.leave();
    World.hold(6, two);
    World.equal(two.revoked(), List.of(), "what the second gave up");
    two.leave();
  }

  private static void staticMember(World world) throws Exception {
    String topic = world.topic("", 4);
    Map<String, String> first = Map.of("group.instance.id", "one", "session.timeout.ms", "40000");
    Map<String, String> second = Map.of("group.instance.id", "two", "session.timeout.ms", "40000");
    Member one = world.join(first).subscribe(topic);
    Member two = world.join(second).subscribe(topic);
    World.hold(2, one, two);
    Set<String> held = one.held();
    int generation = identity(two).generationId();
    int taken = two.revoked().size();
    one.leave();
    World.equal(world.described().members().size(), 2, "members while one is away");
    Member back = world.join(first).subscribe(topic);
    World.hold(2, back);
    World.equal(back.held(), held, "the same partitions");
    World.equal(identity(back).generationId(), generation, "generation");
    World.equal(two.revoked().size(), taken, "what the other had to give up");
    back.leave();
    two.leave();
  }

  private static void fencedInstance(World world) throws Exception {
    String topic = world.topic("", 2);
    Map<String, String> settings = Map.of("group.instance.id", "one");
    Member one = world.join(settings).subscribe(topic);
    World.hold(2, one);
    Member usurper = world.join(settings).subscribe(topic);
    World.hold(2, usurper);
    World.eventually("the first is fenced", () -> one.failure() != null);
    World.equal(one.failure().getClass(), FencedInstanceIdException.class, "failure");
    usurper.leave();
  }

  private static void pattern(World world) throws Exception {
    String north = world.topic("-north", 2);
    Member member = world.join(Map.of()).subscribe(Pattern.compile(Pattern.quote(world.group) + "-.*th"));
    World.hold(2, member);
    String south = world.topic("-south", 3);
    world.topic("-east", 1);
    World.hold(5, member);
    World.equal(member.held().contains(south + "-2") && member.held().contains(north + "-1"), true, "both");
    member.leave();
  }

  private static void commits(World world) throws Exception {
    String topic = world.topic("", 2);
    TopicPartition zero = World.at(topic, 0);
    TopicPartition one = World.at(topic, 1);
    Member member = world.join(Map.of()).subscribe(topic);
    World.hold(2, member);
    OffsetAndMetadata remark = new OffsetAndMetadata(7, "a remark, with ümläuts");
    member.call(
        consumer -> {
          consumer.commitSync(Map.of(zero, remark));
          return null;
        });
    CompletableFuture<Exception> later = new CompletableFuture<>();
    member.call(
        consumer -> {
          consumer.commitAsync(
              Map.of(one, new OffsetAndMetadata(8)), (offsets, failed) -> later.complete(failed));
          return null;
        });
    World.equal(later.get(World.PATIENCE_S, TimeUnit.SECONDS), null, "commitAsync");
    Map<TopicPartition, OffsetAndMetadata> found =
        member.call(consumer -> consumer.committed(Set.of(zero, one)));
    World.equal(found.get(zero).metadata(), remark.metadata(), "metadata");
    World.equal(List.of(found.get(zero).offset(), found.get(one).offset()), List.of(7L, 8L), "offsets");
    member.call(consumer -> commit(consumer, zero, 3)); // back is allowed
    World.equal(world.committed(), Map.of(topic + "-0", 3L, topic + "-1", 8L), "committed");
    member.leave();
  }

  private static void evicted(World world) throws Exception {
    String topic = world.topic("", 2);
    // a member that an administrator throws out: with heartbeats this rare, its commit finds out
    Member member =
        world
            .join(Map.of("heartbeat.interval.ms", "20000", "session.timeout.ms", "60000"))
            .subscribe(topic);
    World.hold(2, member);
    TopicPartition zero = World.at(topic, 0);
    member.call(consumer -> commit(consumer, zero, 4));
    World.get(
        world.admin.removeMembersFromConsumerGroup(world.group, new RemoveMembersFromConsumerGroupOptions()).all());
    world.state(ClassicGroupState.EMPTY);
    World.fails(CommitFailedException.class, () -> member.call(consumer -> commit(consumer, zero, 5)));
    World.equal(world.committed(), Map.of(topic + "-0", 4L), "committed");
    world.state(ClassicGroupState.STABLE); // it joins again by itself
    member.call(consumer -> commit(consumer, zero, 6));
    member.leave();
  }

  private static void offsetsOfTopics(World world) throws Exception {
    String topic = world.topic("", 2);
    Member member = world.join(Map.of()).subscribe(topic);
    World.hold(2, member);
    TopicPartition zero = World.at(topic, 0);
    World.equal(member.call(c -> c.beginningOffsets(Set.of(zero))), Map.of(zero, 0L), "beginning");
    World.equal(member.call(c -> c.endOffsets(Set.of(zero))), Map.of(zero, 0L), "end");
    World.equal(member.call(c -> c.partitionsFor(topic).size()), 2, "partitions");
    World.equal(member.call(c -> c.poll(Duration.ofMillis(500)).count()), 0, "records");
    World.equal(member.call(c -> c.position(zero)), 0L, "position");
    member.leave();
  }

  private static void monotonicCommit(World world) throws Exception {
    String topic = world.topic("", 2);
    world.setGroupConfig("commit.monotonic", "true");
    TopicPartition zero = World.at(topic, 0);
    Member member = world.join(Map.of()).subscribe(topic);
    World.hold(2, member);
    ConsumerGroupMetadata before = identity(member);
    member.call(consumer -> commit(consumer, zero, 10));
    World.fails(
        InvalidCommitOffsetSizeException.class,
        () -> member.call(consumer -> commit(consumer, zero, 9)));
    member.call(consumer -> commit(consumer, zero, 11));
    World.equal(world.committed(), Map.of(topic + "-0", 11L), "committed");
    ConsumerGroupMetadata after = identity(member);
    World.equal(after.memberId(), before.memberId(), "member id");
    World.equal(after.generationId(), before.generationId(), "generation");
    World.equal(member.revoked(), List.of(), "what it lost");
    member.leave();
    // an administrator, who is no member, may go back
    World.get(
        world
            .admin
            .alterConsumerGroupOffsets(world.group, Map.of(zero, new OffsetAndMetadata(2)))
            .all());
    World.equal(world.committed(), Map.of(topic + "-0", 2L), "committed by an administrator");
  }

  private static void producerRefused(World world) throws Exception {
    String topic = world.topic("", 1);
    Exception refusal = world.grow(World.at(topic, 0), 1);
    World.equal(refusal == null ? null : refusal.getClass(), PolicyViolationException.class, "refusal");
  }
}
