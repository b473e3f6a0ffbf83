import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Constructor;
import java.net.InetAddress;
import java.net.URLDecoder;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.EnumMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import java.util.function.Supplier;
import kafka.server.ClientRequestQuotaManager;
import org.apache.kafka.common.MetricName;
import org.apache.kafka.common.errors.ThrottlingQuotaExceededException;
import org.apache.kafka.common.metrics.KafkaMetric;
import org.apache.kafka.common.metrics.MetricConfig;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.Quota;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.utils.Sanitizer;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.network.Session;
import org.apache.kafka.server.config.ClientQuotaManagerConfig;
import org.apache.kafka.server.quota.ClientQuotaEntity;
import org.apache.kafka.server.quota.ClientQuotaManager;
import org.apache.kafka.server.quota.ControllerMutationQuota;
import org.apache.kafka.server.quota.ControllerMutationQuotaManager;
import org.apache.kafka.server.quota.QuotaType;
import org.apache.kafka.server.quota.ThrottleCallback;

/**
 * A broker's own quota managers on a clock that is told: QuotaDay SAMPLES WINDOW_S, a line per event on standard input.
 *
 * TIME quota TYPE USER CLIENT BOUND    a limit; "-" leaves a part or the bound out, "*" is the default entity
 * TIME record TYPE USER CLIENT AMOUNT  answered with the throttle time in ms, of which the metrics take note
 * TIME unrecord|quiet TYPE USER CLIENT AMOUNT
 * TIME strict|permissive controller_mutation USER CLIENT AMOUNT   answered with the throttle time of the request
 * TIME sweep                           sensors of an hour ago are forgotten
 * TIME tell                            answered with "METRIC TYPE USER CLIENT FIGURE" lines and an "end"
 *
 * Names are URL-encoded, an empty one is "%".
 */
public class QuotaDay {
    static volatile long now = 0;
    static final Map<QuotaType, ClientQuotaManager> managers = new EnumMap<>(QuotaType.class);
    static final ThrottleCallback nobody = new ThrottleCallback() {
        public void startThrottling() { }
        public void endThrottling() { }
    };

    static class ToldClock implements Time {
        public long milliseconds() { return now; }
        public long nanoseconds() { return now * 1000000L; }
        public void sleep(long ms) { }
        public void waitObject(Object object, Supplier<Boolean> condition, long deadline) { }
    }

    public static void main(String[] arguments) throws Exception {
        ClientQuotaManagerConfig config =
            new ClientQuotaManagerConfig(Integer.parseInt(arguments[0]), Integer.parseInt(arguments[1]));
        Time clock = new ToldClock();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.US_ASCII);
        String line = in.readLine();
        now = Long.parseLong(line);
        Metrics metrics = new Metrics(new MetricConfig(), new ArrayList<>(), clock, false);
        for (QuotaType type : List.of(QuotaType.PRODUCE, QuotaType.FETCH)) {
            managers.put(type, new ClientQuotaManager(config, metrics, type, clock, ""));
        }
        managers.put(QuotaType.REQUEST, new ClientRequestQuotaManager(config, metrics, clock, "", Optional.empty()));
        managers.put(QuotaType.CONTROLLER_MUTATION,
            new ControllerMutationQuotaManager(config, metrics, clock, "", Optional.empty()));
        while ((line = in.readLine()) != null) {
            String[] parts = line.split(" ");
            now = Long.parseLong(parts[0]);
            switch (parts[1]) {
                case "sweep" -> sweep(metrics);
                case "tell" -> tell(metrics, out);
                case "quota" -> limit(parts);
                default -> use(parts, out);
            }
        }
        out.flush();
        System.exit(0);
    }

    static void use(String[] parts, PrintStream out) throws Exception {
        ClientQuotaManager manager = managers.get(QuotaType.valueOf(parts[2].toUpperCase()));
        Session session = new Session(
            new KafkaPrincipal("User", decoded(parts[3])), InetAddress.getLoopbackAddress());
        String client = decoded(parts[4]);
        double amount = Double.parseDouble(parts[5]);
        switch (parts[1]) {
            case "record" -> {
                int throttleMs = manager.maybeRecordAndGetThrottleTimeMs(session, client, amount, now);
                manager.throttle(client, session, nobody, throttleMs);
                out.println(throttleMs);
            }
            case "unrecord" -> manager.unrecordQuotaSensor(session, client, amount, now);
            case "quiet" -> manager.recordNoThrottle(session, client, amount);
            case "strict" -> out.println(told(((ControllerMutationQuotaManager) manager)
                .newStrictQuotaFor(session, client), amount));
            case "permissive" -> out.println(told(((ControllerMutationQuotaManager) manager)
                .newPermissiveQuotaFor(session, client), amount));
            default -> throw new IllegalArgumentException(parts[1]);
        }
    }

    static int told(ControllerMutationQuota quota, double amount) {
        try {
            quota.record(amount);
        } catch (ThrottlingQuotaExceededException refused) {
            return refused.throttleTimeMs();
        }
        return quota.throttleTime();
    }

    static void limit(String[] parts) {
        Optional<ClientQuotaEntity.ConfigEntity> user = switch (parts[3]) {
            case "-" -> Optional.empty();
            case "*" -> Optional.of(ClientQuotaManager.DEFAULT_USER_ENTITY);
            default -> Optional.of(new ClientQuotaManager.UserEntity(Sanitizer.sanitize(decoded(parts[3]))));
        };
        Optional<ClientQuotaEntity.ConfigEntity> client = switch (parts[4]) {
            case "-" -> Optional.empty();
            case "*" -> Optional.of(ClientQuotaManager.DEFAULT_USER_CLIENT_ID);
            default -> Optional.of(new ClientQuotaManager.ClientIdEntity(decoded(parts[4])));
        };
        Optional<Quota> quota =
            parts[5].equals("-") ? Optional.empty() : Optional.of(Quota.upperBound(Double.parseDouble(parts[5])));
        managers.get(QuotaType.valueOf(parts[2].toUpperCase())).updateQuota(user, client, quota);
    }

    /** What a broker does every 30 s of its own clock. */
    static void sweep(Metrics metrics) throws Exception {
        Constructor<?> made = Class.forName("org.apache.kafka.common.metrics.Metrics$ExpireSensorTask")
            .getDeclaredConstructor(Metrics.class);
        made.setAccessible(true);
        ((Runnable) made.newInstance(metrics)).run();
    }

    static void tell(Metrics metrics, PrintStream out) {
        Map<String, Double> lines = new TreeMap<>();
        for (Map.Entry<MetricName, KafkaMetric> entry : metrics.metrics().entrySet()) {
            MetricName name = entry.getKey();
            if (name.tags().containsKey("client-id")) {
                String place = name.name() + " " + name.group() + " " + encoded(name.tags().get("user")) + " "
                    + encoded(name.tags().get("client-id"));
                lines.put(place, (Double) entry.getValue().metricValue());
            }
        }
        lines.forEach((place, figure) -> out.println(place + " " + figure));
        out.println("end");
    }

    static String decoded(String text) {
        return text.equals("%") ? "" : URLDecoder.decode(text, StandardCharsets.UTF_8);
    }

    static String encoded(String text) {
        return text.isEmpty() ? "%" : java.net.URLEncoder.encode(text, StandardCharsets.UTF_8);
    }
}
