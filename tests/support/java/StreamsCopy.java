import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;

/**
 * Copies one topic to another with Kafka Streams until standard input ends: StreamsCopy BOOTSTRAP APPLICATION SOURCE
 * TARGET THREADS. Each thread has a producer and two consumers whose client-ids Streams generates. Says "running" once
 * it does, and "done" at the end.
 */
public class StreamsCopy {
    public static void main(String[] args) throws Exception {
        Properties properties = new Properties();
        properties.setProperty(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, args[0]);
        properties.setProperty(StreamsConfig.APPLICATION_ID_CONFIG, args[1]);
        properties.setProperty(StreamsConfig.NUM_STREAM_THREADS_CONFIG, args[4]);
        properties.setProperty(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.ByteArraySerde.class.getName());
        properties.setProperty(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.ByteArraySerde.class.getName());
        properties.setProperty(StreamsConfig.producerPrefix("linger.ms"), "5");
        properties.setProperty(StreamsConfig.consumerPrefix("auto.offset.reset"), "earliest");
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(args[2]).to(args[3]);
        try (KafkaStreams streams = new KafkaStreams(builder.build(), properties)) {
            streams.setStateListener((now, before) -> {
                if (now == KafkaStreams.State.RUNNING) {
                    System.out.println("running");
                }
            });
            streams.start();
            while (System.in.read() >= 0) {
            }
        }
        System.out.println("done");
    }
}
