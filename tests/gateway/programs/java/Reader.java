import java.time.Duration;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * Reads a topic of numbers as a member of a group, until it is killed: BOOTSTRAP TOPIC GROUP
 * PARTITIONS. It prints the lines that tests/helpers/gateway/readers.py explains.
 */
public final class Reader {
  public static void main(String[] arguments) {
    Properties settings = new Properties();
    settings.put("bootstrap.servers", arguments[0]);
    settings.put("group.id", arguments[2]);
    settings.put("auto.offset.reset", "earliest");
    settings.put("enable.auto.commit", "false");
    settings.put("session.timeout.ms", "20000");
    settings.put("heartbeat.interval.ms", "1000");
    settings.put("metadata.max.age.ms", "2000");
    settings.put("reconnect.backoff.max.ms", "500");
    // With "rebootstrap", a client that reaches no broker forgets its topics, and a leader rejoins.
    settings.put("metadata.recovery.strategy", "none");
    int partitions = Integer.parseInt(arguments[3]);
    try (KafkaConsumer<String, String> consumer =
        new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
      consumer.subscribe(List.of(arguments[1]), new Listener());
      while (true) {
        ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(200));
        for (TopicPartition each : records.partitions()) {
          print(records.records(each), each.partition(), partitions);
        }
        if (!records.isEmpty()) {
          commit(consumer, records);
        }
      }
    }
  }

  private static void print(
      List<ConsumerRecord<String, String>> records, int partition, int partitions) {
    long first = records.get(0).offset();
    for (int n = 0; n < records.size(); n++) {
      ConsumerRecord<String, String> record = records.get(n);
      if (record.offset() != first + n
          || Long.parseLong(record.value()) != record.offset() * partitions + partition) {
        say("wrong", partition, record.offset());
      }
    }
    say("read", partition, first, first + records.size());
  }

  private static void commit(
      KafkaConsumer<String, String> consumer, ConsumerRecords<String, String> records) {
    Map<TopicPartition, OffsetAndMetadata> next = records.nextOffsets();
    try {
      consumer.commitSync(next);
    } catch (KafkaException failure) {
      System.out.println("failed " + failure);
      return;
    }
    next.forEach((each, offset) -> say("committed", each.partition(), offset.offset()));
  }

  private static void say(String word, long... numbers) {
    StringBuilder line = new StringBuilder(word).append(' ').append(System.currentTimeMillis());
    for (long each : numbers) {
      line.append(' ').append(each);
    }
    System.out.println(line);
  }

  private static final class Listener implements ConsumerRebalanceListener {
    @Override
    public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
      say("assigned");
    }

    @Override
    public void onPartitionsRevoked(Collection<TopicPartition> partitions) {}
  }
}
