import java.nio.ByteBuffer;
import java.util.HexFormat;
import java.util.Map;
import java.util.NavigableMap;
import java.util.TreeMap;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.types.BoundField;
import org.apache.kafka.common.protocol.types.Field;
import org.apache.kafka.common.protocol.types.Schema;
import org.apache.kafka.common.protocol.types.Struct;
import org.apache.kafka.common.protocol.types.TaggedFields;
import org.apache.kafka.common.protocol.types.Type;

/**
 * A response of every version of every API, each of whose texts is its own path: a line "KEY VERSION HEADER BODY" with
 * the version of the response's header and the body in hexadecimal, by the schemas of the released classes.
 *
 * Arrays have one element, tagged fields and structures that may be null are there, numbers are 1.
 */
public class ResponsesWithText {
    static final java.lang.reflect.Field FIELDS = taggedFields();
    static final Object NO_RECORDS = noRecords();

    public static void main(String[] arguments) throws ReflectiveOperationException {
        FIELDS.setAccessible(true);
        for (ApiKeys api : ApiKeys.values()) {
            for (short version = api.oldestVersion(); version <= api.latestVersion(true); version++) {
                Schema schema = api.messageType.responseSchemas()[version];
                Object response = sample(schema, "");
                ByteBuffer body = ByteBuffer.allocate(schema.sizeOf(response));
                schema.write(body, response);
                System.out.println(api.id + " " + version + " " + api.responseHeaderVersion(version) + " "
                    + HexFormat.of().formatHex(body.array()));
            }
        }
    }

    static java.lang.reflect.Field taggedFields() {
        try {
            return TaggedFields.class.getDeclaredField("fields"); // no method has them before Kafka 4
        } catch (NoSuchFieldException error) {
            throw new AssertionError(error);
        }
    }

    static Object noRecords() {
        for (String place : new String[] {"internal.MemoryRecords", "MemoryRecords"}) { // where Kafka 4.3, 3.9 has it
            try {
                return Class.forName("org.apache.kafka.common.record." + place).getField("EMPTY").get(null);
            } catch (ReflectiveOperationException error) {
                continue;
            }
        }
        throw new AssertionError("there are no records");
    }

    @SuppressWarnings("unchecked")
    static Object sample(Type type, String path) throws ReflectiveOperationException {
        if (type instanceof Schema) {
            Struct struct = new Struct((Schema) type);
            for (BoundField field : ((Schema) type).fields()) {
                struct.set(field, sample(field.def.type, path + "/" + field.def.name));
            }
            return struct;
        }
        if (type instanceof TaggedFields) {
            NavigableMap<Integer, Object> values = new TreeMap<>();
            for (Map.Entry<Integer, Field> field : ((Map<Integer, Field>) FIELDS.get(type)).entrySet()) {
                String name = path.substring(0, path.lastIndexOf('/')) + "/" + field.getValue().name;
                values.put(field.getKey(), sample(field.getValue().type, name));
            }
            return values;
        }
        if (type.isArray()) {
            return new Object[] {sample(type.arrayElementType().get(), path)};
        }
        switch (((Type.DocumentedType) type).typeName()) {
            case "STRING": case "COMPACT_STRING": case "NULLABLE_STRING": case "COMPACT_NULLABLE_STRING":
                return path;
            case "BOOLEAN": return true;
            case "INT8": return (byte) 1;
            case "INT16": return (short) 1;
            case "UINT16": return 1;
            case "INT32": return 1;
            case "UINT32": return 1L;
            case "INT64": return 1L;
            case "FLOAT64": return 1.0;
            case "UUID": return new org.apache.kafka.common.Uuid(1, 1);
            case "BYTES": case "NULLABLE_BYTES": case "COMPACT_BYTES": case "COMPACT_NULLABLE_BYTES":
                return ByteBuffer.allocate(0);
            case "RECORDS": case "COMPACT_RECORDS": return NO_RECORDS;
            default: return null;
        }
    }
}
