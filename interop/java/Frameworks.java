import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.io.RandomAccessFile;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.common.utils.internals.AppInfoParser;
import org.apache.kafka.connect.cli.ConnectDistributed;
import org.apache.kafka.connect.connector.Task;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.runtime.Connect;
import org.apache.kafka.connect.runtime.Herder;
import org.apache.kafka.connect.sink.SinkConnector;
import org.apache.kafka.connect.sink.SinkRecord;
import org.apache.kafka.connect.sink.SinkTask;
import org.apache.kafka.connect.source.SourceConnector;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.source.SourceTask;
import org.apache.kafka.connect.storage.StringConverter;
import org.apache.kafka.connect.util.FutureCallback;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Materialized;
import org.springframework.context.annotation.AnnotationConfigApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.core.env.MapPropertySource;
import org.springframework.kafka.annotation.EnableKafka;
import org.springframework.kafka.annotation.KafkaListener;
import org.springframework.kafka.config.ConcurrentKafkaListenerContainerFactory;
import org.springframework.kafka.core.DefaultKafkaConsumerFactory;
import org.springframework.kafka.core.DefaultKafkaProducerFactory;
import org.springframework.kafka.core.KafkaTemplate;
import org.springframework.messaging.handler.annotation.SendTo;

/**
 * Applications of the frameworks that stand on Kafka's Java clients. Each reads one topic and writes another, in the way of
 * its framework, so that all can be put through the same rows: see rows_frameworks.go for what is due.
 */
class Frameworks {
    /** Stops the application that runs, as its users do. */
    private static AutoCloseable running;

    /** Starts an application and returns the framework's name and version. */
    static String run(JsonNode q) throws Exception {
        String in = q.get("topic").asText(), out = q.get("args").get(0).asText(), name = q.get("group").asText();
        Path dir = Path.of(q.get("args").get(1).asText());
        running = switch (q.get("class").asText()) {
            case "spring" -> spring(in, out, name);
            case "connect" -> connect(in, out, name, dir);
            case "streams" -> streams(in, out, name, dir);
            default -> throw new IllegalArgumentException(q.get("class").asText());
        };
        return switch (q.get("class").asText()) {
            case "spring" -> "Spring Kafka " + KafkaTemplate.class.getPackage().getImplementationVersion();
            case "connect" -> "Kafka Connect " + AppInfoParser.getVersion();
            default -> "Kafka Streams " + AppInfoParser.getVersion();
        };
    }

    static void quit() throws Exception {
        running.close();
    }

    // Spring Kafka: a listener whose answers go to the other topic.

    static AutoCloseable spring(String in, String out, String name) {
        AnnotationConfigApplicationContext app = new AnnotationConfigApplicationContext();
        app.getEnvironment().getPropertySources().addFirst(new MapPropertySource("matrix", Map.of("in", in, "out", out, "name", name)));
        app.register(Copy.class);
        app.refresh();
        return app;
    }

    @Configuration
    @EnableKafka
    public static class Copy {
        @Bean public KafkaTemplate<String, String> template() {
            return new KafkaTemplate<>(new DefaultKafkaProducerFactory<>(Agent.config("key.serializer", StringSerializer.class,
                "value.serializer", StringSerializer.class)));
        }

        @Bean public ConcurrentKafkaListenerContainerFactory<String, String> kafkaListenerContainerFactory() {
            ConcurrentKafkaListenerContainerFactory<String, String> f = new ConcurrentKafkaListenerContainerFactory<>();
            f.setConsumerFactory(new DefaultKafkaConsumerFactory<>(Agent.config("key.deserializer", StringDeserializer.class,
                "value.deserializer", StringDeserializer.class, "auto.offset.reset", "earliest")));
            f.setReplyTemplate(template());
            f.setConcurrency(2);
            return f;
        }

        @KafkaListener(id = "${name}", topics = "${in}")
        @SendTo("${out}")
        public String copy(String value) {
            return value;
        }
    }

    // Kafka Streams: counts how often each value came; its store has a changelog, and the new key a topic to go by.

    static AutoCloseable streams(String in, String out, String name, Path dir) {
        StreamsBuilder b = new StreamsBuilder();
        b.<String, String>stream(in).selectKey((k, v) -> v).groupByKey().count(Materialized.as("counts"))
            .toStream().mapValues(n -> Long.toString(n)).to(out);
        Properties p = new Properties();
        p.putAll(Agent.config(StreamsConfig.APPLICATION_ID_CONFIG, name, StreamsConfig.STATE_DIR_CONFIG, dir.toString(),
            StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class, StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG,
            Serdes.StringSerde.class, StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 200, StreamsConfig.NUM_STREAM_THREADS_CONFIG, 2,
            "auto.offset.reset", "earliest",
            "session.timeout.ms", 6000)); // it does not leave its group when it stops: who comes next waits for that
        KafkaStreams s = new KafkaStreams(b.build(), p);
        s.start();
        return () -> {
            if (!s.close(Duration.ofSeconds(30))) {
                throw new IllegalStateException("the application did not stop within 30 s");
            }
        };
    }

    // Kafka Connect, a distributed worker: a sink writes the topic to a file, a source sends the file's lines on.

    static AutoCloseable connect(String in, String out, String name, Path dir) throws Exception {
        Map<String, String> worker = new HashMap<>();
        worker.putAll(Map.of("bootstrap.servers", Agent.bootstrap, "group.id", name, "listeners", "http://127.0.0.1:0",
            "key.converter", StringConverter.class.getName(), "value.converter", StringConverter.class.getName(),
            "offset.flush.interval.ms", "500", "scheduled.rebalance.max.delay.ms", "0"));
        for (String kind : List.of("config", "offset", "status")) {
            worker.put(kind + ".storage.topic", name + "-" + kind);
            worker.put(kind + ".storage.replication.factor", "-1");
        }
        worker.put("offset.storage.partitions", "5");
        Connect<? extends Herder> connect = new ConnectDistributed().startConnect(worker);
        String file = dir.resolve("lines").toString();
        put(connect, name + "-sink", Map.of("connector.class", FileSink.class.getName(), "topics", in, "file", file,
            "consumer.override.auto.offset.reset", "earliest"));
        put(connect, name + "-source", Map.of("connector.class", FileSource.class.getName(), "topic", out, "file", file));
        return () -> {
            connect.stop();
            connect.awaitStop();
        };
    }

    static void put(Connect<? extends Herder> connect, String name, Map<String, String> config) throws Exception {
        Map<String, String> all = new HashMap<>(config);
        all.put("name", name);
        all.put("tasks.max", "1");
        long until = System.currentTimeMillis() + 40000;
        while (true) {
            FutureCallback<Herder.Created<org.apache.kafka.connect.runtime.rest.entities.ConnectorInfo>> done = new FutureCallback<>();
            connect.herder().putConnectorConfig(name, all, true, done);
            try {
                done.get(40, java.util.concurrent.TimeUnit.SECONDS);
                return;
            } catch (ExecutionException e) { // as its REST interface says 409 while a worker joins
                if (System.currentTimeMillis() > until) {
                    throw e;
                }
                Thread.sleep(200);
            }
        }
    }

    static final ConfigDef FILE = new ConfigDef().define("file", ConfigDef.Type.STRING, ConfigDef.Importance.HIGH, "the file")
        .define("topic", ConfigDef.Type.STRING, "", ConfigDef.Importance.HIGH, "of a source, where its lines go");

    /** Writes each record's value as a line. Kafka's own connector of this kind comes in an archive, not from a registry. */
    public static class FileSink extends SinkConnector {
        private Map<String, String> config;

        @Override public String version() {
            return "1";
        }

        @Override public void start(Map<String, String> config) {
            this.config = config;
        }

        @Override public Class<? extends Task> taskClass() {
            return FileSinkTask.class;
        }

        @Override public List<Map<String, String>> taskConfigs(int max) {
            return List.of(config);
        }

        @Override public void stop() { }

        @Override public ConfigDef config() {
            return FILE;
        }
    }

    public static class FileSinkTask extends SinkTask {
        private Path file;

        @Override public String version() {
            return "1";
        }

        @Override public void start(Map<String, String> config) {
            file = Path.of(config.get("file"));
        }

        @Override public void put(Collection<SinkRecord> records) {
            StringBuilder lines = new StringBuilder();
            records.forEach(r -> lines.append(r.value()).append('\n'));
            try {
                Files.writeString(file, lines, StandardOpenOption.CREATE, StandardOpenOption.APPEND);
            } catch (IOException e) {
                throw new java.io.UncheckedIOException(e);
            }
        }

        @Override public void flush(Map<TopicPartition, OffsetAndMetadata> offsets) { }

        @Override public void stop() { }
    }

    /** Sends each line of a file, and remembers how far it has come in Connect's own topic of offsets. */
    public static class FileSource extends SourceConnector {
        private Map<String, String> config;

        @Override public String version() {
            return "1";
        }

        @Override public void start(Map<String, String> config) {
            this.config = config;
        }

        @Override public Class<? extends Task> taskClass() {
            return FileSourceTask.class;
        }

        @Override public List<Map<String, String>> taskConfigs(int max) {
            return List.of(config);
        }

        @Override public void stop() { }

        @Override public ConfigDef config() {
            return FILE;
        }
    }

    public static class FileSourceTask extends SourceTask {
        private String file;
        private String topic;
        private long position;

        @Override public String version() {
            return "1";
        }

        @Override public void start(Map<String, String> config) {
            file = config.get("file");
            topic = config.get("topic");
            Map<String, Object> offset = context.offsetStorageReader().offset(Map.of("file", file));
            position = offset == null ? 0 : (Long) offset.get("position");
        }

        @Override public List<SourceRecord> poll() throws InterruptedException {
            List<SourceRecord> records = new ArrayList<>();
            try (RandomAccessFile f = new RandomAccessFile(file, "r")) {
                byte[] more = new byte[(int) Math.min(Math.max(f.length() - position, 0), 1 << 20)];
                f.seek(position);
                f.readFully(more);
                int start = 0;
                for (int i = 0; i < more.length; i++) {
                    if (more[i] == '\n') {
                        String line = new String(more, start, i - start, StandardCharsets.UTF_8);
                        start = i + 1;
                        records.add(new SourceRecord(Map.of("file", file), Map.of("position", position + start), topic,
                            Schema.STRING_SCHEMA, line));
                    }
                }
                position += start;
            } catch (IOException notYet) {
                Thread.sleep(100);
            }
            if (records.isEmpty()) {
                Thread.sleep(100);
            }
            return records;
        }

        @Override public void stop() { }
    }
}
