import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Method;
import java.nio.charset.Charset;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.locks.LockSupport;
import org.apache.kafka.common.utils.Exit;

/**
 * Kafka's tools, one run for each line of standard input, a JSON array of its main class and its arguments. A line of
 * standard output has its exit code, and what it wrote to either output until then.
 *
 * Where a tool would end its process, its thread stands still for ever: nothing that comes behind its exit runs.
 */
public class ToolCalls {
    public static void main(String[] arguments) throws Exception {
        PrintStream answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        ByteArrayOutputStream out = new ByteArrayOutputStream(), err = new ByteArrayOutputStream();
        System.setOut(new PrintStream(out, true, Charset.defaultCharset()));
        System.setErr(new PrintStream(err, true, Charset.defaultCharset()));
        ObjectMapper json = new ObjectMapper();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            int code = called(json.readValue(line, String[].class));
            answers.println(json.writeValueAsString(new Object[] {code, taken(out), taken(err)}));
        }
        System.exit(0);
    }

    static int called(String[] call) throws Exception {
        Method tool = Class.forName(call[0]).getMethod("main", String[].class);
        String[] arguments = Arrays.copyOfRange(call, 1, call.length);
        CompletableFuture<Integer> ended = new CompletableFuture<>();
        Exit.setExitProcedure((code, message) -> {
            ended.complete(code);
            while (true) LockSupport.park();
        });
        Thread thread = new Thread(() -> {
            try {
                tool.invoke(null, (Object) arguments);
                ended.complete(0);
            } catch (ReflectiveOperationException error) {
                error.getCause().printStackTrace();
                ended.complete(1);
            }
        });
        thread.setDaemon(true);
        thread.start();
        return ended.get();
    }

    static String taken(ByteArrayOutputStream output) throws IOException {
        String text = output.toString(Charset.defaultCharset());
        output.reset();
        return text;
    }
}
