import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.function.BooleanSupplier;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.common.GroupType;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** KafkaConsumers of the new protocol (KIP-848), and Admin on their groups. Prints each thing that came true. */
public class ConsumerProtocol {
    static final long PATIENCE_NS = 60_000_000_000L;
    static String server;

    public static void main(String[] arguments) throws Exception {
        server = arguments[0];
        sharesAndResumes();
        followsPattern();
    }

    static void sharesAndResumes() throws Exception {
        var first = consumer("java");
        first.subscribe(List.of("orders"));
        until("alone", () -> first.assignment().size() == 12, List.of(first));
        var second = consumer("java");
        second.subscribe(List.of("orders"));
        var both = List.of(first, second);
        until("shared", () -> both.stream().allMatch(c -> c.assignment().size() == 6), both);
        described();
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        for (var partition : second.assignment()) offsets.put(partition, new OffsetAndMetadata(7));
        second.commitSync(offsets);
        second.close();
        until("handed over", () -> first.assignment().size() == 12, List.of(first));
        equal(first.committed(offsets.keySet()), offsets);
        System.out.println("committed");
        first.close();
    }

    static void described() throws Exception {
        try (var admin = Admin.create(Map.of("bootstrap.servers", server))) {
            var group = admin.describeConsumerGroups(List.of("java")).all().get().get("java");
            equal(group.type(), GroupType.CONSUMER);
            equal(group.members().size(), 2);
            for (var member : group.members()) equal(member.assignment().topicPartitions().size(), 6);
            var listed = admin.listGroups().all().get().stream().filter(each -> each.groupId().equals("java")).toList();
            equal(listed.get(0).type().orElseThrow(), GroupType.CONSUMER);
        }
        System.out.println("described");
    }

    static void followsPattern() throws Exception {
        var consumer = consumer("java-pattern");
        consumer.subscribe(new SubscriptionPattern("ord.*"));
        until("pattern", () -> consumer.assignment().size() == 12, List.of(consumer));
        try (var admin = Admin.create(Map.of("bootstrap.servers", server))) {
            admin.createTopics(Set.of(new org.apache.kafka.clients.admin.NewTopic("ord-2", 3, (short) 1))).all().get();
        }
        until("new topic", () -> consumer.assignment().size() == 15, List.of(consumer));
        consumer.close();
    }

    static KafkaConsumer<byte[], byte[]> consumer(String group) {
        Map<String, Object> settings = Map.of(
            "bootstrap.servers", server, "group.id", group, "group.protocol", "consumer",
            "enable.auto.commit", "false", "auto.offset.reset", "earliest", "metadata.max.age.ms", "1000");
        return new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    static void until(String what, BooleanSupplier ready, List<KafkaConsumer<byte[], byte[]>> polled) {
        long end = System.nanoTime() + PATIENCE_NS;
        while (!ready.getAsBoolean()) {
            if (System.nanoTime() > end) throw new IllegalStateException(what + " never came");
            for (var consumer : polled) consumer.poll(Duration.ofMillis(50));
        }
        System.out.println(what);
    }

    static void equal(Object seen, Object wanted) {
        if (!seen.equals(wanted)) throw new IllegalStateException(seen + " is not " + wanted);
    }
}
