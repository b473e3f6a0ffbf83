import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;

/**
 * Creates a topic of one partition once a line comes: CreateTopic BOOTSTRAP CLIENT_ID TOPIC. Says "ready" when it is
 * connected, and repeats what is refused as Kafka's client does.
 */
public class CreateTopic {
    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", arguments[0]);
        properties.put("client.id", arguments[1]);
        try (Admin admin = Admin.create(properties)) {
            admin.describeCluster().controller().get();
            System.out.println("ready");
            System.in.read();
            admin.createTopics(List.of(new NewTopic(arguments[2], 1, (short) 1))).all().get();
            System.out.println("created " + arguments[2]);
        }
    }
}
