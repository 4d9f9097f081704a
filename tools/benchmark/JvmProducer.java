import java.io.BufferedReader;
import java.io.DataInputStream;
import java.io.FileInputStream;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.clients.producer.Callback;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;

/**
 * Kafka's producer, which threads share: each sends the same records. In the Java that Spark's compiler Janino knows.
 *
 * Arguments: settings, topic, file of records, records of a thread, threads, records of a thread before the start.
 */
public class JvmProducer {
    private static KafkaProducer producer;
    private static String topic;
    private static byte[][] keys;
    private static byte[][] values;
    private static final AtomicLong acknowledged = new AtomicLong();

    private static final Callback COUNT = new Callback() {
        public void onCompletion(RecordMetadata metadata, Exception error) {
            if (error == null) {
                acknowledged.incrementAndGet();
            } else {
                error.printStackTrace();
            }
        }
    };

    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.load(new FileInputStream(arguments[0]));
        topic = arguments[1];
        read(arguments[2]);
        int threads = Integer.parseInt(arguments[4]);
        producer = new KafkaProducer(settings);
        send(Integer.parseInt(arguments[5]), threads);
        acknowledged.set(0);
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        System.out.println("ready");
        input.readLine();
        send(Integer.parseInt(arguments[3]), threads);
        System.out.println(acknowledged.get());
        input.readLine();
        producer.close();
    }

    /** Reads a file of keys and values in turn, each behind its length in four bytes; that of no key is negative. */
    private static void read(String path) throws Exception {
        DataInputStream input = new DataInputStream(new java.io.BufferedInputStream(new FileInputStream(path)));
        int count = input.readInt();
        keys = new byte[count][];
        values = new byte[count][];
        for (int number = 0; number < count; number++) {
            keys[number] = next(input);
            values[number] = next(input);
        }
        input.close();
    }

    private static byte[] next(DataInputStream input) throws Exception {
        int length = input.readInt();
        if (length < 0) {
            return null;
        }
        byte[] bytes = new byte[length];
        input.readFully(bytes);
        return bytes;
    }

    private static void send(final int count, int threads) throws Exception {
        List started = new ArrayList();
        for (int number = 0; number < threads; number++) {
            Thread thread = new Thread() {
                public void run() {
                    for (int each = 0; each < count; each++) {
                        int at = each % values.length;
                        producer.send(new ProducerRecord(topic, keys[at], values[at]), COUNT);
                    }
                }
            };
            thread.start();
            started.add(thread);
        }
        for (int number = 0; number < threads; number++) {
            ((Thread) started.get(number)).join();
        }
        producer.flush();
    }
}
