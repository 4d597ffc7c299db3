import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.GroupListing;
import org.apache.kafka.clients.admin.ListConsumerGroupOffsetsSpec;
import org.apache.kafka.clients.admin.ListGroupsOptions;
import org.apache.kafka.clients.admin.MemberToRemove;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RemoveMembersFromConsumerGroupOptions;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.ClassicGroupState;
import org.apache.kafka.common.GroupState;
import org.apache.kafka.common.GroupType;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.GroupIdNotFoundException;
import org.apache.kafka.common.errors.GroupNotEmptyException;
import org.apache.kafka.common.errors.GroupSubscribedToTopicException;
import org.apache.kafka.common.errors.InvalidConfigurationException;
import org.apache.kafka.common.errors.UnknownMemberIdException;

/** Lives of Admin. */
final class Admins {
  private Admins() {}

  static void addTo(Map<String, Host.Life> lives) {
    lives.put("java-admin/list-groups", Admins::listGroups);
    lives.put("java-admin/describe-groups", Admins::describeGroups);
    lives.put("java-admin/offsets", Admins::offsets);
    lives.put("java-admin/delete-offsets", Admins::deleteOffsets);
    lives.put("java-admin/delete-groups", Admins::deleteGroups);
    lives.put("java-admin/remove-members", Admins::removeMembers);
    lives.put("java-admin/group-configs", Admins::groupConfigs);
    lives.put("java-admin/read-only-configs", Admins::readOnlyConfigs);
    lives.put("java-admin/topics", Admins::topics);
    lives.put("java-admin/cluster", Admins::cluster);
  }

  private static void commit(World world, String group, String topic, int partition, long offset)
      throws Exception {
    Map<TopicPartition, OffsetAndMetadata> offsets =
        Map.of(World.at(topic, partition), new OffsetAndMetadata(offset, "by admin"));
    World.get(world.admin.alterConsumerGroupOffsets(group, offsets).all());
  }

  /** How a listing shows the scenario's group, "" if it does not. */
  private static String listed(World world, ListGroupsOptions options) throws Exception {
    Collection<GroupListing> all = World.get(world.admin.listGroups(options).all());
    return all.stream()
        .filter(listing -> listing.groupId().equals(world.group))
        .map(
            listing ->
                listing.type().orElseThrow()
                    + " "
                    + listing.groupState().orElseThrow()
                    + " "
                    + listing.protocol())
        .collect(Collectors.joining());
  }

  @SuppressWarnings({"deprecation", "removal"}) // the older way is what most people's code calls
  private static void listGroups(World world) throws Exception {
    String topic = world.topic("", 1);
    commit(world, world.group, topic, 0, 1);
    World.equal(listed(world, new ListGroupsOptions()), "Classic Empty ", "a simple group");
    Member member = world.join(Map.of()).subscribe(topic);
    World.hold(1, member);
    String shown = "Classic Stable consumer";
    World.equal(listed(world, new ListGroupsOptions()), shown, "a group with members");
    World.equal(listed(world, ListGroupsOptions.forConsumerGroups()), shown, "consumer groups");
    World.equal(
        World.get(world.admin.listConsumerGroups().all()).stream()
            .anyMatch(listing -> listing.groupId().equals(world.group)),
        true,
        "listConsumerGroups");
    World.equal(listed(world, new ListGroupsOptions().inGroupStates(Set.of(GroupState.STABLE))), shown, "by state");
    World.equal(listed(world, new ListGroupsOptions().inGroupStates(Set.of(GroupState.EMPTY))), "", "other state");
    World.equal(listed(world, new ListGroupsOptions().withTypes(Set.of(GroupType.CLASSIC))), shown, "by type");
    World.equal(listed(world, new ListGroupsOptions().withTypes(Set.of(GroupType.CONSUMER))), "", "other type");
    member.leave();
  }

  private static void describeGroups(World world) throws Exception {
    String topic = world.topic("", 2);
    Member member =
        world.join(Map.of("client.id", "the-client", "group.instance.id", "one")).subscribe(topic);
    World.hold(2, member);
    ConsumerGroupDescription group =
        World.get(world.admin.describeConsumerGroups(List.of(world.group)).all()).get(world.group);
    World.equal(group.type(), GroupType.CLASSIC, "type");
    World.equal(group.groupState(), GroupState.STABLE, "state");
    World.equal(group.partitionAssignor(), "range", "assignor");
    var described = group.members().iterator().next();
    World.equal(described.clientId(), "the-client", "client id");
    World.equal(described.groupInstanceId().orElse(""), "one", "instance id");
    World.equal(described.host().startsWith("/127."), true, "host " + described.host());
    World.equal(
        described.assignment().topicPartitions(),
        Set.of(World.at(topic, 0), World.at(topic, 1)),
        "assignment");
    World.equal(world.described().members().size(), 1, "members, as a classic group");
    World.fails(
        GroupIdNotFoundException.class,
        () -> World.get(world.admin.describeConsumerGroups(List.of(world.group + "-absent")).all()));
    member.leave();
  }

  private static void offsets(World world) throws Exception {
    String topic = world.topic("", 2);
    commit(world, world.group, topic, 0, 5);
    commit(world, world.group, topic, 1, 6);
    commit(world, world.group + "-other", topic, 1, 7);
    World.equal(world.committed(), Map.of(topic + "-0", 5L, topic + "-1", 6L), "all");
    var both =
        World.get(
            world
                .admin
                .listConsumerGroupOffsets(
                    Map.of(
                        world.group,
                        new ListConsumerGroupOffsetsSpec().topicPartitions(List.of(World.at(topic, 0))),
                        world.group + "-other",
                        new ListConsumerGroupOffsetsSpec()))
                .all());
    World.equal(both.get(world.group).size(), 1, "one partition was asked for");
    World.equal(both.get(world.group).get(World.at(topic, 0)).metadata(), "by admin", "metadata");
    World.equal(both.get(world.group + "-other").get(World.at(topic, 1)).offset(), 7L, "the other");
    // offsets of a group at work are its members' alone
    Member member = world.join(Map.of()).subscribe(topic);
    World.hold(2, member);
    World.fails(
        UnknownMemberIdException.class,
        () -> {
          commit(world, world.group, topic, 0, 1);
          return null;
        });
    member.leave();
  }

  private static void deleteOffsets(World world) throws Exception {
    String topic = world.topic("", 2);
    commit(world, world.group, topic, 0, 5);
    commit(world, world.group, topic, 1, 6);
    Member member = world.join(Map.of()).subscribe(topic);
    World.hold(2, member);
    Set<TopicPartition> zero = Set.of(World.at(topic, 0));
    World.fails(
        GroupSubscribedToTopicException.class,
        () ->
            World.get(
                world.admin.deleteConsumerGroupOffsets(world.group, zero).partitionResult(World.at(topic, 0))));
    member.leave();
    world.state(ClassicGroupState.EMPTY);
    World.get(world.admin.deleteConsumerGroupOffsets(world.group, zero).all());
    World.equal(world.committed(), Map.of(topic + "-1", 6L), "left");
    World.fails(
        GroupIdNotFoundException.class,
        () -> World.get(world.admin.deleteConsumerGroupOffsets(world.group + "-absent", zero).all()));
  }

  private static void deleteGroups(World world) throws Exception {
    String topic = world.topic("", 1);
    commit(world, world.group, topic, 0, 5);
    Member member = world.join(Map.of()).subscribe(topic);
    World.hold(1, member);
    World.fails(
        GroupNotEmptyException.class,
        () -> World.get(world.admin.deleteConsumerGroups(List.of(world.group)).all()));
    member.leave();
    world.state(ClassicGroupState.EMPTY);
    World.get(world.admin.deleteConsumerGroups(List.of(world.group)).all());
    World.equal(world.committed(), Map.of(), "left");
    World.fails(
        GroupIdNotFoundException.class,
        () -> World.get(world.admin.deleteConsumerGroups(List.of(world.group)).all()));
  }

  private static void removeMembers(World world) throws Exception {
    String topic = world.topic("", 4);
    Member one =
        world.join(Map.of("group.instance.id", "one", "session.timeout.ms", "60000")).subscribe(topic);
    Member two = world.join(Map.of()).subscribe(topic);
    World.hold(2, one, two);
    one.leave();
    World.equal(two.held().size(), 2, "a static member that is away keeps its share");
    var removal = new RemoveMembersFromConsumerGroupOptions(List.of(new MemberToRemove("one")));
    removal.reason("its host is gone");
    World.get(world.admin.removeMembersFromConsumerGroup(world.group, removal).all());
    World.hold(4, two);
    var stranger = new RemoveMembersFromConsumerGroupOptions(List.of(new MemberToRemove("nobody")));
    World.fails(
        UnknownMemberIdException.class,
        () ->
            World.get(
                world
                    .admin
                    .removeMembersFromConsumerGroup(world.group, stranger)
                    .memberResult(new MemberToRemove("nobody"))));
    two.leave();
  }

  private static Map<String, String> values(World world, ConfigResource resource) throws Exception {
    Config config = World.get(world.admin.describeConfigs(List.of(resource)).all()).get(resource);
    Map<String, String> values = new TreeMap<>();
    for (ConfigEntry entry : config.entries()) {
      values.put(entry.name(), entry.value() + " " + entry.source());
    }
    return values;
  }

  private static void groupConfigs(World world) throws Exception {
    String key = "consumer.session.timeout.ms";
    ConfigResource group = new ConfigResource(ConfigResource.Type.GROUP, world.group);
    World.equal(values(world, group).get(key), "45000 DEFAULT_CONFIG", "at first");
    world.setGroupConfig(key, "50000");
    World.eventually(
        "set", () -> "50000 DYNAMIC_GROUP_CONFIG".equals(values(world, group).get(key)));
    World.eventually(
        "listed",
        () -> World.get(world.admin.listConfigResources(Set.of(ConfigResource.Type.GROUP), new org.apache.kafka.clients.admin.ListConfigResourcesOptions()).all()).contains(group));
    World.fails(
        InvalidConfigurationException.class,
        () -> {
          world.setGroupConfig(key, "soon");
          return null;
        });
    World.fails(
        InvalidConfigurationException.class,
        () -> {
          world.setGroupConfig("no.such.key", "1");
          return null;
        });
    AlterConfigOp delete = new AlterConfigOp(new ConfigEntry(key, ""), AlterConfigOp.OpType.DELETE);
    World.get(world.admin.incrementalAlterConfigs(Map.of(group, List.of(delete))).all());
    World.eventually(
        "deleted", () -> "45000 DEFAULT_CONFIG".equals(values(world, group).get(key)));
  }

  private static void readOnlyConfigs(World world) throws Exception {
    String topic = world.topic("", 1);
    String node = World.get(world.admin.describeCluster().nodes()).iterator().next().idString();
    Map<String, String> broker = values(world, new ConfigResource(ConfigResource.Type.BROKER, node));
    World.equal(broker.containsKey("group.initial.rebalance.delay.ms"), true, "of the broker: " + broker.keySet());
    values(world, new ConfigResource(ConfigResource.Type.TOPIC, topic));
    // all types at once, as a tool asks that wants everything
    World.get(world.admin.listConfigResources().all());
  }

  private static void topics(World world) throws Exception {
    String topic = world.topic("", 1);
    World.get(world.admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(3))).all());
    World.eventually(
        "grown",
        () -> World.get(world.admin.describeTopics(List.of(topic)).allTopicNames()).get(topic).partitions().size() == 3);
    TopicPartition two = World.at(topic, 2);
    var latest = World.get(world.admin.listOffsets(Map.of(two, OffsetSpec.latest())).all());
    World.equal(latest.get(two).offset(), 0L, "end of an empty partition");
    var first = World.get(world.admin.describeTopics(List.of(topic)).allTopicNames()).get(topic).topicId();
    commit(world, world.group, topic, 2, 8);
    World.get(world.admin.deleteTopics(List.of(topic)).all());
    World.eventually("offsets go with their topic", () -> world.committed().isEmpty());
    World.eventually("gone", () -> !World.get(world.admin.listTopics().names()).contains(topic));
    world.topic("", 1);
    var second = World.get(world.admin.describeTopics(List.of(topic)).allTopicNames()).get(topic).topicId();
    World.equal(first.equals(second), false, "a topic made again has an id of its own");
  }

  private static void cluster(World world) throws Exception {
    var described = world.admin.describeCluster();
    World.equal(World.get(described.nodes()).size(), 1, "nodes");
    World.equal(World.get(described.clusterId()).isEmpty(), false, "cluster id");
    var features = World.get(world.admin.describeFeatures().featureMetadata());
    World.equal(features.finalizedFeatures().containsKey("group.version"), true, "features");
  }
}
