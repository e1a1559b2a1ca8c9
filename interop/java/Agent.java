import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.OffsetOutOfRangeException;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.Partitioner;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.WakeupException;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.utils.internals.AppInfoParser;
import org.apache.kafka.common.utils.internals.Exit;

/**
 * Drives Kafka's own Java clients, and its command line tools inside this process, for the matrix: the lines of
 * agent/agent.go over standard input and output. Run from its source, with the tools' jars on the class path.
 */
public class Agent {
    static final ObjectMapper JSON = new ObjectMapper();
    static String bootstrap;
    static Admin admin;
    static Member member;

    public static void main(String[] args) throws Exception {
        bootstrap = args[0];
        PrintStream out = System.out; // tools print elsewhere
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = in.readLine()) != null; ) {
            ObjectNode answer;
            try {
                answer = answer(JSON.readTree(line));
            } catch (Throwable t) {
                Throwable cause = t instanceof ExecutionException && t.getCause() != null ? t.getCause() : t;
                answer = JSON.createObjectNode();
                ObjectNode error = answer.putObject("error");
                // The consumer's own exception is not among the protocol's.
                int code = cause instanceof OffsetOutOfRangeException ? 1 : Errors.forException(cause).code();
                error.put("code", code == 0 ? -1 : code);
                error.put("text", cause.getClass().getSimpleName() + ": " + cause.getMessage());
            }
            out.println(JSON.writeValueAsString(answer));
            out.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    static ObjectNode answer(JsonNode q) throws Exception {
        ObjectNode a = JSON.createObjectNode();
        switch (q.get("op").asText()) {
            case "hello" -> a.put("client", "Java " + AppInfoParser.getVersion());
            case "produce" -> produce(q, a);
            case "read" -> read(q, a);
            case "tool" -> tool(q, a);
            case "commit", "committed" -> offsets(q, a);
            case "join" -> {
                member = new Member(q);
                member.start();
            }
            case "status" -> member.status(a);
            case "leave" -> member.leave();
            case "run" -> a.put("client", Frameworks.run(q));
            case "quit" -> Frameworks.quit();
            default -> administer(q, a);
        }
        return a;
    }

    static Map<String, Object> config(Object... pairs) {
        Map<String, Object> c = new HashMap<>();
        c.put("bootstrap.servers", bootstrap);
        for (int i = 0; i < pairs.length; i += 2) {
            c.put((String) pairs[i], pairs[i + 1]);
        }
        return c;
    }

    static Admin admin() {
        if (admin == null) {
            admin = Admin.create(config("default.api.timeout.ms", 30000));
        }
        return admin;
    }

    static byte[] bytes(JsonNode n) throws Exception {
        return n == null || n.isNull() ? null : n.binaryValue();
    }

    static TopicPartition partition(JsonNode q) {
        return new TopicPartition(q.get("topic").asText(), q.get("partition").asInt());
    }

    static void produce(JsonNode q, ObjectNode a) throws Exception {
        Map<String, Object> c = config("compression.type", q.get("codec").asText(), "linger.ms", 20, "max.request.size", 4000000,
            "max.block.ms", 10000, "key.serializer", ByteArraySerializer.class, "value.serializer", ByteArraySerializer.class);
        if (!q.path("idempotent").asBoolean()) {
            c.put("enable.idempotence", false);
        }
        try (KafkaProducer<byte[], byte[]> p = new KafkaProducer<>(c)) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (JsonNode r : q.path("records")) {
                List<Header> headers = new ArrayList<>();
                for (JsonNode h : r.path("headers")) {
                    headers.add(new RecordHeader(h.get("key").asText(), bytes(h.get("value"))));
                }
                Long time = r.get("timestamp").asLong() == 0 ? null : (Long) r.get("timestamp").asLong();
                sent.add(p.send(new ProducerRecord<>(q.get("topic").asText(), r.get("partition").asInt(), time, bytes(r.get("key")),
                    bytes(r.get("value")), headers)));
                if (q.path("pause").asInt() > 0) {
                    sent.get(sent.size() - 1).get();
                    Thread.sleep(q.path("pause").asInt());
                }
            }
            p.flush();
            ArrayNode offsets = a.putArray("offsets");
            for (Future<RecordMetadata> f : sent) {
                offsets.add(f.get().offset());
            }
        }
    }

    static KafkaConsumer<byte[], byte[]> consumer(Object... pairs) {
        Map<String, Object> c = config("key.deserializer", ByteArrayDeserializer.class, "value.deserializer", ByteArrayDeserializer.class,
            "enable.auto.commit", false);
        c.putAll(config(pairs));
        return new KafkaConsumer<>(c);
    }

    static void read(JsonNode q, ObjectNode a) {
        int count = q.path("count").asInt();
        ArrayNode records = a.putArray("records");
        try (KafkaConsumer<byte[], byte[]> c = consumer("auto.offset.reset", "none")) {
            c.assign(List.of(partition(q)));
            c.seek(partition(q), q.get("offset").asLong());
            long until = System.currentTimeMillis() + 40000;
            while (records.size() < count && System.currentTimeMillis() < until) {
                for (ConsumerRecord<byte[], byte[]> r : c.poll(Duration.ofSeconds(1))) {
                    ObjectNode n = records.addObject();
                    n.put("partition", r.partition()).put("offset", r.offset()).put("timestamp", r.timestamp());
                    n.put("key", r.key()).put("value", r.value());
                    ArrayNode headers = n.putArray("headers");
                    for (Header h : r.headers()) {
                        headers.addObject().put("key", h.key()).put("value", h.value());
                    }
                }
            }
        }
    }

    static <T> T get(KafkaFuture<T> f) throws Exception {
        return f.get();
    }

    static void administer(JsonNode q, ObjectNode a) throws Exception {
        String topic = q.path("topic").asText();
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        Map<String, String> settings = new TreeMap<>();
        q.path("config").properties().forEach(e -> settings.put(e.getKey(), e.getValue().asText()));
        switch (q.get("op").asText()) {
            case "create" -> get(admin().createTopics(List.of(
                new NewTopic(topic, Optional.of(q.get("partitions").asInt()), Optional.empty()).configs(settings))).all());
            case "describe" -> a.put("partitions", get(admin().describeTopics(List.of(topic)).allTopicNames()).get(topic).partitions().size());
            case "offset" -> {
                long time = q.path("time").asLong();
                OffsetSpec spec = time == -1 ? OffsetSpec.latest() : time == -2 ? OffsetSpec.earliest() : OffsetSpec.forTimestamp(time);
                a.put("offset", get(admin().listOffsets(Map.of(partition(q), spec)).all()).get(partition(q)).offset());
            }
            case "configs" -> {
                ObjectNode c = a.putObject("config");
                get(admin().describeConfigs(List.of(resource)).all()).get(resource).entries().forEach(e -> c.put(e.name(), e.value()));
            }
            case "alter" -> {
                List<AlterConfigOp> ops = new ArrayList<>();
                settings.forEach((k, v) -> ops.add(new AlterConfigOp(new ConfigEntry(k, v), AlterConfigOp.OpType.SET)));
                get(admin().incrementalAlterConfigs(Map.of(resource, (Collection<AlterConfigOp>) ops)).all());
            }
            case "grow" -> get(admin().createPartitions(Map.of(topic, NewPartitions.increaseTo(q.get("partitions").asInt()))).all());
            case "trim" -> a.put("offset", get(admin().deleteRecords(Map.of(partition(q),
                RecordsToDelete.beforeOffset(q.get("offset").asLong()))).lowWatermarks().get(partition(q))).lowWatermark());
            case "delete" -> get(admin().deleteTopics(List.of(topic)).all());
            case "groups" -> {
                String group = q.get("group").asText();
                var d = get(admin().describeConsumerGroups(List.of(group)).all()).get(group);
                a.put("state", d.groupState().toString()).put("members", d.members().size());
            }
            default -> a.put("gap", "its library has no call for this");
        }
    }

    static void offsets(JsonNode q, ObjectNode a) {
        try (KafkaConsumer<byte[], byte[]> c = consumer("group.id", q.get("group").asText())) {
            if (q.get("op").asText().equals("commit")) {
                c.commitSync(Map.of(partition(q), new OffsetAndMetadata(q.get("offset").asLong(), q.path("metadata").asText())));
                return;
            }
            OffsetAndMetadata found = c.committed(java.util.Set.of(partition(q))).get(partition(q));
            a.put("offset", found == null ? -1 : found.offset()).put("metadata", found == null ? "" : found.metadata());
        }
    }

    /** A member of a group that reads, and commits every 200 ms, until it is told to leave. */
    static class Member extends Thread implements ConsumerRebalanceListener {
        final KafkaConsumer<byte[], byte[]> c;
        final String topic;
        final TreeSet<Integer> assigned = new TreeSet<>();
        final Map<Integer, List<Long>> consumed = new TreeMap<>();

        Member(JsonNode q) {
            topic = q.get("topic").asText();
            setDaemon(true);
            List<Object> more = new ArrayList<>(List.of("group.id", q.get("group").asText(), "auto.offset.reset", "earliest",
                "enable.auto.commit", true, "auto.commit.interval.ms", 200));
            if (q.path("protocol").asText().equals("consumer")) {
                more.addAll(List.of("group.protocol", "consumer"));
            } else {
                more.addAll(List.of("group.protocol", "classic", "session.timeout.ms", 6000, "heartbeat.interval.ms", 500));
            }
            c = consumer(more.toArray());
        }

        @Override public synchronized void onPartitionsAssigned(Collection<TopicPartition> ps) {
            ps.forEach(p -> assigned.add(p.partition()));
        }

        @Override public synchronized void onPartitionsRevoked(Collection<TopicPartition> ps) {
            ps.forEach(p -> assigned.remove(p.partition()));
        }

        @Override public void run() {
            c.subscribe(List.of(topic), this);
            try {
                while (true) {
                    var records = c.poll(Duration.ofMillis(100));
                    synchronized (this) {
                        records.forEach(r -> consumed.computeIfAbsent(r.partition(), p -> new ArrayList<>()).add(r.offset()));
                    }
                }
            } catch (WakeupException leaving) {
                c.close();
            }
        }

        synchronized void status(ObjectNode a) {
            ArrayNode list = a.putArray("assigned");
            assigned.forEach(list::add);
            ObjectNode map = a.putObject("consumed");
            consumed.forEach((p, offsets) -> {
                ArrayNode of = map.putArray(p.toString());
                offsets.forEach(of::add);
            });
        }

        void leave() throws Exception {
            c.wakeup();
            join(30000);
        }
    }

    /** Sends everything to one partition, which the console producer has no option for. */
    public abstract static class To implements Partitioner {
        final int partition;

        To(int partition) {
            this.partition = partition;
        }

        @Override public int partition(String topic, Object key, byte[] keyBytes, Object value, byte[] valueBytes, Cluster cluster) {
            return partition;
        }

        @Override public void configure(Map<String, ?> configs) { }

        @Override public void close() { }
    }

    public static class To0 extends To {
        public To0() {
            super(0);
        }
    }

    public static class To1 extends To {
        public To1() {
            super(1);
        }
    }

    /** Ends a tool where it would end the process. */
    static class Exited extends Error {
        Exited() {
            super(null, null, false, false);
        }
    }

    /** Runs the main method of a command line tool as the shell would, and returns what it printed. */
    static void tool(JsonNode q, ObjectNode a) throws Exception {
        List<String> args = new ArrayList<>();
        q.path("args").forEach(n -> args.add(n.asText()));
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        PrintStream out = System.out, err = System.err, to = new PrintStream(printed, true, StandardCharsets.UTF_8);
        InputStream in = System.in;
        // Tools that catch everything would end again: the first end counts, with what was printed before it.
        int[] ended = {-1, 0};
        Exit.Procedure end = (status, message) -> {
            if (ended[0] < 0) {
                if (message != null) {
                    to.println(message);
                }
                to.flush();
                ended[0] = status;
                ended[1] = printed.size();
            }
            throw new Exited();
        };
        Exit.setExitProcedure(end);
        Exit.setHaltProcedure(end);
        // What a tool leaves to the end of its process is done at its end: the console producer waits there for what it has sent.
        List<Runnable> hooks = new ArrayList<>();
        Exit.setShutdownHookAdder((name, hook) -> hooks.add(hook));
        System.setOut(to);
        System.setErr(to);
        System.setIn(new ByteArrayInputStream(q.path("input").asText("").getBytes(StandardCharsets.UTF_8)));
        int status = 0;
        try {
            Class.forName("org.apache.kafka.tools." + q.get("class").asText()).getMethod("main", String[].class)
                .invoke(null, (Object) args.toArray(new String[0]));
        } catch (java.lang.reflect.InvocationTargetException e) {
            if (!(e.getCause() instanceof Exited)) {
                status = 1;
                e.getCause().printStackTrace(to);
            }
        } finally {
            hooks.forEach(Runnable::run);
            to.flush();
            System.setOut(out);
            System.setErr(err);
            System.setIn(in);
        }
        // Records can hold any byte: each becomes the character of its number.
        String text = printed.toString(StandardCharsets.ISO_8859_1);
        a.put("output", ended[0] < 0 ? text : text.substring(0, ended[1])).put("exit", ended[0] < 0 ? status : ended[0]);
    }
}
