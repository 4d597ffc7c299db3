import java.io.*;
import java.util.*;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.coordinator.group.api.assignor.*;
import org.apache.kafka.coordinator.group.assignor.*;

/**
 * Kafka's assignors of consumer groups. A line of input is a group, and gives a line of output.
 *
 * Input: partitions of each topic, then the members; a member: id|instance id or -|topics|previous.
 * Output: the partitions of each member by range, then those by uniform. A partition: topic:number.
 */
public class Assignors {
    record Member(Optional<String> instanceId, Set<Uuid> topics, Map<Uuid, Set<Integer>> previous)
            implements MemberSubscription, MemberAssignment {
        public Optional<String> rackId() { return Optional.empty(); }
        public Set<Uuid> subscribedTopicIds() { return topics; }
        public Map<Uuid, Set<Integer>> partitions() { return previous; }
    }

    record Group(int[] counts, Map<String, Member> members) implements GroupSpec, SubscribedTopicDescriber {
        public Collection<String> memberIds() { return members.keySet(); }
        public SubscriptionType subscriptionType() {
            long different = members.values().stream().map(Member::topics).distinct().count();
            return different == 1 ? SubscriptionType.HOMOGENEOUS : SubscriptionType.HETEROGENEOUS;
        }
        public boolean isPartitionAssigned(Uuid topic, int partition) {
            return members.values().stream()
                .anyMatch(m -> m.previous().getOrDefault(topic, Set.of()).contains(partition));
        }
        public boolean isPartitionAssignable(Uuid topic, int partition) { return true; }
        public MemberSubscription memberSubscription(String id) { return members.get(id); }
        public MemberAssignment memberAssignment(String id) { return members.get(id); }
        public int numPartitions(Uuid topic) { return counts[number(topic)]; }
        public Set<String> racksForPartition(Uuid topic, int partition) { return Set.of(); }
    }

    static Uuid topic(String number) { return new Uuid(1, Integer.parseInt(number) + 1); }

    static int number(Uuid topic) { return (int) topic.getLeastSignificantBits() - 1; }

    static Group read(String line) {
        String[] words = line.split("\t", -1);
        int[] counts = Arrays.stream(words[0].split(",")).mapToInt(Integer::parseInt).toArray();
        Map<String, Member> members = new LinkedHashMap<>();
        for (String word : List.of(words).subList(1, words.length)) {
            String[] fields = word.split("\\|", -1);
            Set<Uuid> topics = new HashSet<>();
            for (String topic : fields[2].split(",")) topics.add(topic(topic));
            Map<Uuid, Set<Integer>> previous = new HashMap<>();
            for (String each : fields[3].isEmpty() ? new String[0] : fields[3].split(",")) {
                String[] parts = each.split(":");
                previous.computeIfAbsent(topic(parts[0]), t -> new HashSet<>()).add(Integer.parseInt(parts[1]));
            }
            Optional<String> instanceId = Optional.of(fields[1]).filter(id -> !id.equals("-"));
            members.put(fields[0], new Member(instanceId, topics, Collections.unmodifiableMap(previous)));
        }
        return new Group(counts, members);
    }

    static String assigned(ConsumerGroupPartitionAssignor assignor, Group group) {
        Map<String, MemberAssignment> target = assignor.assign(group, group).members();
        StringJoiner all = new StringJoiner("|");
        for (String id : group.memberIds()) {
            StringJoiner own = new StringJoiner(",");
            if (target.containsKey(id))
                target.get(id).partitions().forEach((topic, partitions) ->
                    partitions.forEach(partition -> own.add(number(topic) + ":" + partition)));
            all.add(own.toString());
        }
        return all.toString();
    }

    public static void main(String[] arguments) throws IOException {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            Group group = read(line);
            System.out.println(assigned(new RangeAssignor(), group) + "\t" + assigned(new UniformAssignor(), group));
        }
    }
}
