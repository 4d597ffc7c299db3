import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Copies a topic exactly once, until it is killed: BOOTSTRAP SOURCE SINK GROUP TRANSACTIONAL_ID
 * PROTOCOL. Every third transaction is aborted. In every tenth, with its offsets sent, it prints
 * "open" and waits a moment: then a test may kill it, or somebody else.
 */
public final class Copier {
  private static final int AT_ONCE = 50;
  private static final int PAUSE_MS = 700;
  private static int transactions;

  public static void main(String[] arguments) throws Exception {
    while (true) {
      try {
        copy(arguments[0], arguments[1], arguments[2], arguments[3], arguments[4], arguments[5]);
      } catch (RuntimeException failure) {
        // what an application does that is fenced, or lost its partitions: start again
        System.out.println("again " + failure);
        Thread.sleep(100);
      }
    }
  }

  private static void copy(
      String bootstrap, String source, String sink, String group, String id, String protocol)
      throws InterruptedException {
    Properties consuming = new Properties();
    consuming.put("bootstrap.servers", bootstrap);
    consuming.put("group.id", group);
    consuming.put("auto.offset.reset", "earliest");
    consuming.put("enable.auto.commit", "false");
    consuming.put("isolation.level", "read_committed");
    consuming.put("group.protocol", protocol);
    if (protocol.equals("classic")) { // in the other one the server says both
      consuming.put("session.timeout.ms", "6000");
      consuming.put("heartbeat.interval.ms", "1000");
    }
    consuming.put("max.poll.records", String.valueOf(AT_ONCE));
    consuming.put("metadata.max.age.ms", "2000");
    Properties producing = new Properties();
    producing.put("bootstrap.servers", bootstrap);
    producing.put("transactional.id", id);
    producing.put("transaction.timeout.ms", "10000");
    try (KafkaConsumer<String, String> consumer =
            new KafkaConsumer<>(consuming, new StringDeserializer(), new StringDeserializer());
        KafkaProducer<String, String> producer =
            new KafkaProducer<>(producing, new StringSerializer(), new StringSerializer())) {
      producer.initTransactions();
      consumer.subscribe(List.of(source));
      while (true) {
        ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(200));
        if (!records.isEmpty()) {
          transact(consumer, producer, records, sink);
        }
      }
    }
  }

  private static void transact(
      KafkaConsumer<String, String> consumer,
      KafkaProducer<String, String> producer,
      ConsumerRecords<String, String> records,
      String sink)
      throws InterruptedException {
    Map<TopicPartition, OffsetAndMetadata> next = new HashMap<>();
    producer.beginTransaction();
    for (ConsumerRecord<String, String> record : records) {
      producer.send(new ProducerRecord<>(sink, record.value()));
      next.put(
          new TopicPartition(record.topic(), record.partition()),
          new OffsetAndMetadata(record.offset() + 1));
    }
    producer.sendOffsetsToTransaction(next, consumer.groupMetadata());
    transactions++;
    if (transactions % 10 == 0) {
      System.out.println("open");
      Thread.sleep(PAUSE_MS);
    }
    if (transactions % 3 == 0) {
      producer.abortTransaction();
      rewind(consumer);
    } else {
      producer.commitTransaction();
      System.out.println("committed");
    }
  }

  private static void rewind(KafkaConsumer<String, String> consumer) {
    Map<TopicPartition, OffsetAndMetadata> committed = consumer.committed(consumer.assignment());
    for (Map.Entry<TopicPartition, OffsetAndMetadata> each : committed.entrySet()) {
      consumer.seek(each.getKey(), each.getValue() == null ? 0 : each.getValue().offset());
    }
  }
}
