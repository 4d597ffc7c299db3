import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import org.apache.kafka.common.utils.AppInfoParser;
import org.apache.kafka.common.utils.Exit;

/**
 * The Java client and Kafka's command line against a server, in one JVM: a start for each call
 * would cost seconds.
 *
 * <p>Started with HOST:PORT. It says first which versions it holds, then reads commands from stdin,
 * one JSON object a line, and answers each with one line that repeats its id:
 *
 * <ul>
 *   <li>{"id": 1, "scenario": "java-consumer/range", "group": "g"}: a life that checks itself
 *   <li>{"id": 2, "tool": ["--list"], "main": "org.apache.kafka.tools.GroupsCommand"}: the main of one
 *       of Kafka's tools, with what it printed
 *   <li>{"id": 3, "join": "name", "group": "g", "topic": "t"} and {"id": 4, "leave": "name"}: a
 *       member for the tool to look at
 * </ul>
 */
public final class Host {
  interface Life {
    void live(World world) throws Exception;
  }

  /** What a tool ends with instead of ending the JVM. */
  private static final class Exited extends RuntimeException {}

  private static final ObjectMapper JSON = new ObjectMapper();
  private static final Map<String, Life> LIVES = new TreeMap<>();
  private static final PrintStream ANSWERS = System.out;

  /** What the tool at work ended with first: some catch their own end, and end once more. */
  private static Integer ended;

  private final String bootstrap;
  private final Map<String, Member> members = new ConcurrentHashMap<>();

  private Host(String bootstrap) {
    this.bootstrap = bootstrap;
  }

  public static void main(String[] arguments) throws Exception {
    Consumers.addTo(LIVES);
    Admins.addTo(LIVES);
    // whatever else prints must not print between the answers
    System.setOut(System.err);
    Exit.setExitProcedure(
        (status, message) -> {
          ended = ended == null ? status : ended;
          throw new Exited();
        });
    answer(Map.of("versions", Map.of("kafka-clients", AppInfoParser.getVersion())));
    Host host = new Host(arguments[0]);
    ExecutorService workers = Executors.newCachedThreadPool();
    BufferedReader commands =
        new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = commands.readLine(); line != null; line = commands.readLine()) {
      JsonNode command = JSON.readTree(line);
      workers.submit(() -> host.obey(command));
    }
    Runtime.getRuntime().halt(0); // members at work are not waited for
  }

  private void obey(JsonNode command) {
    Map<String, Object> answer = new LinkedHashMap<>();
    answer.put("id", command.get("id").asInt());
    try {
      if (command.has("scenario")) {
        String name = command.get("scenario").asText();
        Life life = LIVES.get(name);
        if (life == null) {
          throw new AssertionError("no scenario " + name);
        }
        try (World world = new World(bootstrap, command.get("group").asText())) {
          life.live(world);
        }
      } else if (command.has("tool")) {
        List<String> arguments = new ArrayList<>(List.of("--bootstrap-server", bootstrap));
        command.get("tool").forEach(node -> arguments.add(node.asText()));
        answer.putAll(tool(command.get("main").asText(), arguments));
      } else if (command.has("join")) {
        join(command);
      } else {
        members.remove(command.get("leave").asText()).leave();
      }
      answer.put("ok", true);
    } catch (Throwable failure) {
      StringWriter trace = new StringWriter();
      failure.printStackTrace(new PrintWriter(trace));
      answer.put("ok", false);
      answer.put("error", trace.toString());
    }
    answer(answer);
  }

  private void join(JsonNode command) throws Exception {
    Map<String, Object> settings = new LinkedHashMap<>();
    command.path("settings").properties().forEach(e -> settings.put(e.getKey(), e.getValue().asText()));
    Member member = new Member(bootstrap, command.get("group").asText(), settings);
    member.subscribe(command.get("topic").asText());
    members.put(command.get("join").asText(), member);
    World.eventually("assigned", () -> !member.held().isEmpty());
  }

  /** Runs the command line; one at a time, for it prints to what all share. */
  private static synchronized Map<String, Object> tool(String tool, List<String> arguments)
      throws ReflectiveOperationException {
    ByteArrayOutputStream out = new ByteArrayOutputStream();
    ByteArrayOutputStream err = new ByteArrayOutputStream();
    PrintStream outBefore = System.out;
    PrintStream errBefore = System.err;
    ended = null;
    System.setOut(new PrintStream(out, true, StandardCharsets.UTF_8));
    System.setErr(new PrintStream(err, true, StandardCharsets.UTF_8));
    try {
      Class.forName(tool)
          .getMethod("main", String[].class)
          .invoke(null, (Object) arguments.toArray(new String[0]));
    } catch (InvocationTargetException thrown) {
      if (!(thrown.getCause() instanceof Exited)) {
        throw thrown;
      }
    } finally {
      System.setOut(outBefore);
      System.setErr(errBefore);
    }
    Map<String, Object> printed = new LinkedHashMap<>();
    printed.put("status", ended == null ? 0 : ended);
    printed.put("out", out.toString(StandardCharsets.UTF_8));
    printed.put("err", err.toString(StandardCharsets.UTF_8));
    return printed;
  }

  private static synchronized void answer(Map<String, Object> answer) {
    try {
      ANSWERS.println(JSON.writeValueAsString(answer));
      ANSWERS.flush();
    } catch (Exception failure) {
      throw new AssertionError(failure);
    }
  }
}
