import java.io.DataInputStream;
import java.io.InputStream;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import javassist.bytecode.BootstrapMethodsAttribute;
import javassist.bytecode.ClassFile;
import javassist.bytecode.CodeAttribute;
import javassist.bytecode.CodeIterator;
import javassist.bytecode.ConstPool;
import javassist.bytecode.MethodInfo;
import javassist.bytecode.Opcode;
import org.apache.kafka.common.message.ApiMessageType;
import org.apache.kafka.common.protocol.ApiKeys;

/**
 * The quota types that a broker's classes charge each API with, read from their bytecode: a line per API that
 * `KafkaApis.handle` dispatches, "KEY CHARGE ...", in the order of the keys.
 *
 * A charge is one of
 *   listener        a broker's listener takes the API (else its line says nothing more)
 *   cluster-action  only brokers may send it
 *   produce, fetch  bytes are recorded with that quota manager
 *   request         time on a thread is recorded with the client's quota
 *   exempt          time on a thread is recorded without one, on some way through the handler
 *   mutation=N      partitions are recorded with the controller's quota manager, strictly from version N on
 *   creates         topics are created in the client's name, by a CreateTopics request of the broker
 *
 * What is followed: every method of the classes below that the handler of an API can reach, lambdas included, but not
 * `RequestHandlerHelper.handleError`, which every API has.
 */
public class QuotaCharges {
    static final String APIS = "kafka/server/KafkaApis";
    static final String CONTROLLER = "kafka/server/ControllerApis";
    static final String QUOTAS = "kafka/server/QuotaFactory$QuotaManagers";
    static final String CREATION = "kafka/server/AutoTopicCreationManager";
    static final String[] FOLLOWED = {
        APIS, CONTROLLER, CONTROLLER + "$$anon$1", "kafka/server/RequestHandlerHelper",
        "kafka/server/DefaultAutoTopicCreationManager", "kafka/server/AclApis",
    };
    static final Map<String, Method> methods = new HashMap<>();

    /** An instruction that matters: what is called, or which field, string or small number is put on the stack. */
    record Step(String kind, String owner, String name, String descriptor) {
        String key() { return owner + "." + name + descriptor; }
    }

    record Method(String key, List<Step> steps) { }

    public static void main(String[] arguments) throws Exception {
        for (String name : FOLLOWED) {
            read(name);
        }
        Map<String, Set<String>> controller = dispatched(CONTROLLER);
        Map<String, Set<String>> broker = dispatched(APIS);
        ApiMessageType.ListenerType listener = ApiMessageType.ListenerType.valueOf(arguments[0]);
        for (ApiKeys api : ApiKeys.values()) {
            Set<String> charges = new TreeSet<>();
            if (api.inScope(listener) && broker.containsKey(api.name())) {
                charges.add("listener");
                charges.addAll(broker.get(api.name()));
                if (charges.remove("forwarded")) {
                    controller.getOrDefault(api.name(), Set.of()).stream()
                        .filter(charge -> charge.startsWith("mutation")).forEach(charges::add);
                }
            }
            if (api.clusterAction) {
                charges.add("cluster-action");
            }
            System.out.println(api.id + " " + String.join(" ", charges));
        }
    }

    /** By API, the charges of what `handle` calls between asking for it and asking for the next one. */
    static Map<String, Set<String>> dispatched(String owner) {
        Map<String, Set<String>> found = new LinkedHashMap<>();
        String api = null;
        Method handle = methods.values().stream()
            .filter(method -> method.key().startsWith(owner + ".handle(")).findFirst().orElseThrow();
        for (Step step : handle.steps()) {
            if (step.kind().equals("field") && step.owner().endsWith("/ApiKeys")) {
                api = step.name();
                found.put(api, new TreeSet<>());
            } else if (api != null && !step.name().contains("$handle$") && !step.name().equals("handleError")
                    && methods.containsKey(step.key())) {
                found.get(api).addAll(reached(step.key()));
            }
        }
        return found;
    }

    static Set<String> reached(String root) {
        Set<String> charges = new HashSet<>();
        Set<String> seen = new HashSet<>(Set.of(root));
        Deque<String> open = new ArrayDeque<>(seen);
        while (!open.isEmpty()) {
            Method method = methods.get(open.remove());
            String manager = "", option = "", number = "";
            for (Step step : method.steps()) {
                String name = step.name();
                if (step.kind().equals("number")) {
                    number = name;
                } else if (step.owner().equals("scala/None$") || step.owner().equals("scala/Some")) {
                    option = step.owner();
                } else if (step.owner().equals(QUOTAS)) {
                    manager = name;
                } else if (name.equals("forwardRequest")) {
                    charges.add("forwarded");
                } else if (name.equals("maybeRecordExempt") || name.equals("sendNoOpResponse")) {
                    charges.add("exempt");
                } else if (name.equals("createTopicWithPrincipal")) {
                    charges.add("creates");
                } else if (name.equals("newQuotaFor")) {
                    charges.add("mutation=" + number);
                } else if (records(step)) {
                    charges.add(manager);
                }
                for (String next : targets(step, option)) {
                    if (methods.containsKey(next) && seen.add(next)) {
                        open.add(next);
                    }
                }
            }
        }
        return charges;
    }

    static boolean records(Step step) {
        return step.owner().endsWith("QuotaManager")
            && (step.name().equals("maybeRecordAndGetThrottleTimeMs") || step.name().equals("recordAndGetThrottleTimeMs"));
    }

    /** The methods that a call may end in; topics that are created for nobody are none of the client's. */
    static List<String> targets(Step step, String option) {
        if (step.name().equals("createTopics") && option.equals("scala/None$") || step.name().equals("handleError")) {
            return List.of();
        }
        if (step.owner().equals(CREATION)) {
            return List.of(FOLLOWED[4] + "." + step.name() + step.descriptor());
        }
        return List.of(step.key());
    }

    static void read(String name) throws Exception {
        InputStream resource = QuotaCharges.class.getClassLoader().getResourceAsStream(name + ".class");
        if (resource == null) {
            return;  // a release before the class was made
        }
        try (DataInputStream in = new DataInputStream(resource)) {
            ClassFile file = new ClassFile(in);
            for (MethodInfo info : file.getMethods()) {
                if (info.getCodeAttribute() != null) {
                    String key = name + "." + info.getName() + info.getDescriptor();
                    methods.put(key, new Method(key, steps(file, info.getCodeAttribute())));
                }
            }
        }
    }

    static List<Step> steps(ClassFile file, CodeAttribute code) throws Exception {
        ConstPool pool = file.getConstPool();
        List<Step> steps = new ArrayList<>();
        CodeIterator iterator = code.iterator();
        while (iterator.hasNext()) {
            int at = iterator.next();
            int opcode = iterator.byteAt(at);
            if (opcode >= Opcode.ICONST_0 && opcode <= Opcode.ICONST_5) {
                steps.add(new Step("number", "", String.valueOf(opcode - Opcode.ICONST_0), ""));
            } else if (opcode == Opcode.BIPUSH) {
                steps.add(new Step("number", "", String.valueOf(iterator.byteAt(at + 1)), ""));
            } else if (opcode == Opcode.GETSTATIC) {
                int index = iterator.u16bitAt(at + 1);
                steps.add(new Step("field", slashed(pool.getFieldrefClassName(index)), pool.getFieldrefName(index), ""));
            } else if (opcode == Opcode.NEW) {
                steps.add(new Step("new", slashed(pool.getClassInfo(iterator.u16bitAt(at + 1))), "", ""));
            } else if (opcode == Opcode.INVOKEDYNAMIC) {
                lambda(file, pool, iterator.u16bitAt(at + 1), steps);
            } else if (opcode == Opcode.INVOKEINTERFACE) {
                int index = iterator.u16bitAt(at + 1);
                steps.add(new Step("call", slashed(pool.getInterfaceMethodrefClassName(index)),
                    pool.getInterfaceMethodrefName(index), pool.getInterfaceMethodrefType(index)));
            } else if (opcode == Opcode.INVOKEVIRTUAL || opcode == Opcode.INVOKESPECIAL || opcode == Opcode.INVOKESTATIC) {
                steps.add(call(pool, iterator.u16bitAt(at + 1)));
            }
        }
        return steps;
    }

    /** The method behind a lambda, as if it were called where the lambda is made. */
    static void lambda(ClassFile file, ConstPool pool, int index, List<Step> steps) {
        BootstrapMethodsAttribute attribute =
            (BootstrapMethodsAttribute) file.getAttribute(BootstrapMethodsAttribute.tag);
        for (int argument : attribute.getMethods()[pool.getInvokeDynamicBootstrap(index)].arguments) {
            if (pool.getTag(argument) == ConstPool.CONST_MethodHandle) {
                steps.add(call(pool, pool.getMethodHandleIndex(argument)));
            }
        }
    }

    static Step call(ConstPool pool, int index) {
        if (pool.getTag(index) == ConstPool.CONST_InterfaceMethodref) {
            return new Step("call", slashed(pool.getInterfaceMethodrefClassName(index)),
                pool.getInterfaceMethodrefName(index), pool.getInterfaceMethodrefType(index));
        }
        return new Step("call", slashed(pool.getMethodrefClassName(index)), pool.getMethodrefName(index),
            pool.getMethodrefType(index));
    }

    static String slashed(String name) {
        return name.replace('.', '/');
    }
}
