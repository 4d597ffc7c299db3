import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Apache Kafka's own client, kafka-clients 4.3.1; pom.xml has what it needs. */
public class Billing {
  public static void main(String[] args) {
    Map<String, Object> settings = Map.of(
        "bootstrap.servers", args.length > 0 ? args[0] : "127.0.0.1:9092",
        "group.id", "billing",
        "enable.auto.commit", "false");
    var bytes = new ByteArrayDeserializer();
    try (var consumer = new KafkaConsumer<>(settings, bytes, bytes)) {
      consumer.subscribe(List.of("orders"));
      while (consumer.assignment().isEmpty()) {
        consumer.poll(Duration.ofMillis(100));
      }
      var partition = new TopicPartition("orders", 0);
      consumer.commitSync(Map.of(partition, new OffsetAndMetadata(42)));
      var found = consumer.committed(Set.of(partition)).get(partition);
      System.out.println("orders 0: " + found.offset());
    }
  }
}
