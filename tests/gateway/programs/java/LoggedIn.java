import java.time.Duration;
import java.util.List;
import java.util.Properties;
import java.util.TreeSet;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Logs in, writes and reads numbers, and prints what it has seen: BOOTSTRAP MECHANISM JAAS TOPIC
 * FORBIDDEN GROUP COUNT PAUSE_MS. It reads on during the pause, and writes one more number after it.
 */
public final class LoggedIn {
  public static void main(String[] arguments) throws Exception {
    Properties login = new Properties();
    login.put("bootstrap.servers", arguments[0]);
    login.put("security.protocol", "SASL_PLAINTEXT");
    login.put("sasl.mechanism", arguments[1]);
    login.put("sasl.jaas.config", arguments[2]);
    String topic = arguments[3];
    int count = Integer.parseInt(arguments[6]);
    long pauseMs = Long.parseLong(arguments[7]);
    Properties reading = new Properties();
    reading.putAll(login);
    reading.put("group.id", arguments[5]);
    reading.put("auto.offset.reset", "earliest");
    reading.put("enable.auto.commit", "false");
    try (KafkaProducer<String, String> producer =
            new KafkaProducer<>(login, new StringSerializer(), new StringSerializer());
        KafkaConsumer<String, String> consumer =
            new KafkaConsumer<>(reading, new StringDeserializer(), new StringDeserializer())) {
      for (int n = 0; n < count; n++) {
        producer.send(new ProducerRecord<>(topic, arguments[5], arguments[5] + n)).get();
      }
      consumer.subscribe(List.of(topic));
      TreeSet<String> seen = new TreeSet<>();
      read(consumer, arguments[5], seen, count, Long.MAX_VALUE);
      System.out.println("read " + seen.size());
      read(consumer, arguments[5], seen, count + 1, System.currentTimeMillis() + pauseMs);
      producer.send(new ProducerRecord<>(topic, arguments[5], arguments[5] + count)).get();
      read(consumer, arguments[5], seen, count + 1, Long.MAX_VALUE);
      consumer.commitSync();
      System.out.println("later " + seen.size());
      try {
        producer.send(new ProducerRecord<>(arguments[4], "", "")).get();
        System.out.println("allowed");
      } catch (ExecutionException failure) {
        System.out.println("refused " + failure.getCause().getClass().getSimpleName());
      }
    }
  }

  private static void read(
      KafkaConsumer<String, String> consumer,
      String prefix,
      TreeSet<String> seen,
      int count,
      long untilMs) {
    while (seen.size() < count && System.currentTimeMillis() < untilMs) {
      for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(200))) {
        if (record.value().startsWith(prefix)) {
          seen.add(record.value());
        }
      }
    }
  }
}
