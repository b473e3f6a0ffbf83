import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.InetAddress;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Optional;
import java.util.function.Supplier;
import org.apache.kafka.common.metrics.MetricConfig;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.Quota;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.network.Session;
import org.apache.kafka.server.config.ClientQuotaManagerConfig;
import org.apache.kafka.server.quota.ClientQuotaManager;
import org.apache.kafka.server.quota.ControllerMutationQuota;
import org.apache.kafka.server.quota.ControllerMutationQuotaManager;
import org.apache.kafka.server.quota.QuotaType;

/**
 * A broker's own quota managers, asked for the throttle times of charges: on standard input, for each bucket a line
 * "TYPE SAMPLES WINDOW_S BOUND COUNT" and COUNT lines "TIME_MS record|quiet|unrecord AMOUNT"; on standard output one
 * line with the throttle time in ms of every "record".
 */
public class ThrottleTimes {
    static final String CLIENT = "client";
    static long now = 0;

    static class GivenClock implements Time {
        public long milliseconds() { return now; }
        public long nanoseconds() { return now * 1000000L; }
        public void sleep(long ms) { }
        public void waitObject(Object object, Supplier<Boolean> condition, long deadline) { }
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.US_ASCII);
        String line;
        while ((line = in.readLine()) != null) {
            out.println(answered(in, line.split(" ")));
            out.flush();
        }
        System.exit(0);
    }

    static String answered(BufferedReader in, String[] bucket) throws Exception {
        Time clock = new GivenClock();
        QuotaType type = QuotaType.valueOf(bucket[0]);
        ClientQuotaManagerConfig config =
            new ClientQuotaManagerConfig(Integer.parseInt(bucket[1]), Integer.parseInt(bucket[2]));
        Metrics metrics = new Metrics(new MetricConfig(), new ArrayList<>(), clock, false);
        ClientQuotaManager manager = type == QuotaType.CONTROLLER_MUTATION
            ? new ControllerMutationQuotaManager(config, metrics, clock, "", Optional.empty())
            : new ClientQuotaManager(config, metrics, type, clock, "");
        manager.updateQuota(Optional.empty(), Optional.of(new ClientQuotaManager.ClientIdEntity(CLIENT)),
            Optional.of(Quota.upperBound(Double.parseDouble(bucket[3]))));
        Session session = new Session(KafkaPrincipal.ANONYMOUS, InetAddress.getLoopbackAddress());
        StringBuilder answers = new StringBuilder();
        for (int left = Integer.parseInt(bucket[4]); left > 0; left--) {
            String[] charge = in.readLine().split(" ");
            now = Long.parseLong(charge[0]);
            double amount = Double.parseDouble(charge[2]);
            if (charge[1].equals("unrecord")) {
                manager.unrecordQuotaSensor(session, CLIENT, amount, now);
                continue;
            }
            int throttleMs;
            if (manager instanceof ControllerMutationQuotaManager mutations) {
                ControllerMutationQuota quota = mutations.newPermissiveQuotaFor(session, CLIENT);
                quota.record(amount);
                throttleMs = quota.throttleTime();
            } else {
                throttleMs = manager.maybeRecordAndGetThrottleTimeMs(session, CLIENT, amount, now);
            }
            if (charge[1].equals("record")) {
                answers.append(throttleMs).append(' ');
            }
        }
        manager.shutdown();
        metrics.close();
        return answers.toString().trim();
    }
}
