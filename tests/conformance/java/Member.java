import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.TimeUnit;
import java.util.function.Function;
import java.util.regex.Pattern;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;

/** A KafkaConsumer, of the classic protocol unless its settings say otherwise, polled by a thread of its own. */
final class Member implements ConsumerRebalanceListener {
  private final KafkaConsumer<byte[], byte[]> consumer;
  private final Queue<Runnable> orders = new ConcurrentLinkedQueue<>();
  private final Thread thread;
  private final Set<String> held = new TreeSet<>();
  private final List<String> revoked = new ArrayList<>();
  private volatile boolean leaving;
  private volatile RuntimeException failure;

  Member(String bootstrap, String group, Map<String, ?> settings) {
    Map<String, Object> config = new HashMap<>();
    config.put("bootstrap.servers", bootstrap);
    config.put("group.id", group);
    config.put("group.protocol", "classic");
    config.put("enable.auto.commit", "false");
    config.put("auto.offset.reset", "earliest");
    config.put("session.timeout.ms", "10000");
    config.put("heartbeat.interval.ms", "300");
    config.put("fetch.max.wait.ms", "200");
    config.put("metadata.max.age.ms", "1000");
    config.put("key.deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer");
    config.put("value.deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer");
    config.putAll(settings);
    if (config.get("group.protocol").equals("consumer")) { // the server knows the timeouts
      config.keySet().removeAll(Set.of("session.timeout.ms", "heartbeat.interval.ms"));
    }
    consumer = new KafkaConsumer<>(config);
    thread = new Thread(this::run, group);
    thread.setDaemon(true);
  }

  Member subscribe(String topic) {
    consumer.subscribe(List.of(topic), this);
    thread.start();
    return this;
  }

  Member subscribe(Pattern topics) {
    consumer.subscribe(topics, this);
    thread.start();
    return this;
  }

  private void run() {
    try {
      while (!leaving) {
        consumer.poll(Duration.ofMillis(100));
        for (Runnable order = orders.poll(); order != null; order = orders.poll()) {
          order.run();
        }
      }
    } catch (RuntimeException thrown) {
      failure = thrown;
    } finally {
      consumer.close();
    }
  }

  /** Does something with the consumer between two polls, and hands on what it throws. */
  <R> R call(Function<KafkaConsumer<byte[], byte[]>, R> order) throws Exception {
    CompletableFuture<R> answer = new CompletableFuture<>();
    orders.add(
        () -> {
          try {
            answer.complete(order.apply(consumer));
          } catch (RuntimeException thrown) {
            answer.completeExceptionally(thrown);
          }
        });
    try {
      return answer.get(World.PATIENCE_S, TimeUnit.SECONDS);
    } catch (java.util.concurrent.ExecutionException thrown) {
      throw (Exception) thrown.getCause();
    }
  }

  /** The partitions that it holds, as topic-number. */
  synchronized Set<String> held() {
    return new TreeSet<>(held);
  }

  /** Every partition that was ever taken from it. */
  synchronized List<String> revoked() {
    return new ArrayList<>(revoked);
  }

  /** What ended its polling, if anything did. */
  RuntimeException failure() {
    return failure;
  }

  void leave() throws InterruptedException {
    leaving = true;
    thread.join(World.PATIENCE_S * 1000L);
    if (failure != null) {
      throw failure;
    }
  }

  @Override
  public synchronized void onPartitionsAssigned(Collection<TopicPartition> partitions) {
    partitions.forEach(partition -> held.add(partition.toString()));
  }

  @Override
  public synchronized void onPartitionsRevoked(Collection<TopicPartition> partitions) {
    partitions.forEach(
        partition -> {
          held.remove(partition.toString());
          revoked.add(partition.toString());
        });
  }
}
