import java.time.Duration;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;

/**
 * Copies a topic by Kafka Streams with {@code exactly_once_v2}, until it is killed: BOOTSTRAP SOURCE SINK
 * GROUP INSTANCE. Each 700th record fails, so its transaction is aborted, and a new thread begins. At
 * each 500th it prints "open" and waits a moment, in a transaction.
 */
public final class StreamsCopier {
  private static final int PAUSE_MS = 700;

  public static void main(String[] arguments) throws Exception {
    AtomicInteger seen = new AtomicInteger();
    StreamsBuilder builder = new StreamsBuilder();
    builder.<String, String>stream(arguments[1])
        .mapValues(value -> pass(value, seen.incrementAndGet()))
        .to(arguments[2]);
    Properties settings = new Properties();
    settings.put(StreamsConfig.APPLICATION_ID_CONFIG, arguments[3]);
    settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0]);
    settings.put(StreamsConfig.CLIENT_ID_CONFIG, arguments[4]);
    settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
    settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, "100");
    settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
    settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
    settings.put("state.dir", System.getProperty("java.io.tmpdir"));
    settings.put("consumer.auto.offset.reset", "earliest");
    settings.put("consumer.session.timeout.ms", "6000");
    settings.put("consumer.heartbeat.interval.ms", "1000");
    settings.put("consumer.max.poll.records", "50");
    settings.put("consumer.metadata.max.age.ms", "2000");
    settings.put("producer.transaction.timeout.ms", "10000");
    KafkaStreams streams = new KafkaStreams(builder.build(), settings);
    streams.setUncaughtExceptionHandler(
        failure -> {
          System.out.println("again " + failure);
          return StreamThreadExceptionResponse.REPLACE_THREAD;
        });
    streams.start();
    while (true) {
      Thread.sleep(Duration.ofSeconds(1).toMillis());
    }
  }

  private static String pass(String value, int count) {
    if (count % 500 == 0) {
      System.out.println("open");
      try {
        Thread.sleep(PAUSE_MS);
      } catch (InterruptedException stopped) {
        throw new IllegalStateException(stopped);
      }
    }
    if (count % 700 == 0) {
      throw new IllegalStateException("each 700th record fails");
    }
    return value;
  }
}
