import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Properties;
import java.util.concurrent.Semaphore;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Sends numbered records to partition 0 of a topic until standard input ends: NumberedProducer TOPIC NAME SIZE PAUSE_MS
 * OUTSTANDING KEY=VALUE..., the last ones being the producer's properties. A line per answer: "acked NUMBER" or
 * "failed NUMBER REASON". At the end it waits for what is outstanding, and says "done".
 */
public class NumberedProducer {
    static volatile boolean ended = false;

    public static void main(String[] args) throws Exception {
        String topic = args[0], name = args[1];
        int size = Integer.parseInt(args[2]), pauseMs = Integer.parseInt(args[3]);
        int outstanding = Integer.parseInt(args[4]);
        Properties properties = new Properties();
        for (String each : Arrays.copyOfRange(args, 5, args.length)) {
            int equals = each.indexOf('=');
            properties.setProperty(each.substring(0, equals), each.substring(equals + 1));
        }
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        Thread reader = new Thread(() -> waitForEnd());
        reader.setDaemon(true);
        reader.start();
        Semaphore room = new Semaphore(outstanding);
        ByteArraySerializer bytes = new ByteArraySerializer();
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(properties, bytes, bytes)) {
            for (int number = 0; !ended; number++) {
                room.acquire();
                int sent = number;
                byte[] value = Arrays.copyOf(String.format("%s:%08d ", name, sent).getBytes(StandardCharsets.UTF_8), size);
                producer.send(new ProducerRecord<>(topic, 0, null, value), (metadata, error) -> {
                    room.release();
                    out.println(error == null ? "acked " + sent : "failed " + sent + " " + error);
                });
                Thread.sleep(pauseMs);
            }
            producer.flush();
            out.println("done");
        }
    }

    static void waitForEnd() {
        try (BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8))) {
            while (in.readLine() != null) { }
        } catch (Exception broken) {
            // an end like any other
        }
        ended = true;
    }
}
