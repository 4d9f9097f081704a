import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Sends the records that standard input describes by Kafka's own producer, and prints where each one went.
 *
 * <p>A line is a command, its fields parted by tabs; bytes are in hexadecimal, and "-" stands for null:
 *
 * <pre>
 * producer NAME=VALUE ...                               from here on, a new producer with these settings
 * record TOPIC PARTITION TIMESTAMP KEY VALUE NAME=VALUE ...   the rest are headers, their names in hexadecimal, too
 * flush
 * answer                                                flush, then a line for each record since the last answer
 * init | begin | commit | abort                         of transactions
 * offsets GROUP TOPIC PARTITION OFFSET EPOCH METADATA   of a consumer group, as part of the transaction
 * </pre>
 *
 * <p>For each record, in their order, a line says: partition, offset. An empty line ends an answer.
 */
public class ProduceRecords {
    public static void main(String[] arguments) throws Exception {
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        KafkaProducer<byte[], byte[]> producer = null;
        var input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] fields = line.split("\t", -1);
            switch (fields[0]) {
                case "producer" -> {
                    if (producer != null) producer.close();
                    producer = new KafkaProducer<>(settings(fields), new ByteArraySerializer(), new ByteArraySerializer());
                }
                case "record" -> sent.add(producer.send(record(fields)));
                case "flush" -> producer.flush();
                case "answer" -> {
                    producer.flush();
                    for (Future<RecordMetadata> each : sent) {
                        System.out.println(each.get().partition() + "\t" + each.get().offset());
                    }
                    System.out.println();
                    sent.clear();
                }
                case "init" -> producer.initTransactions();
                case "begin" -> producer.beginTransaction();
                case "offsets" -> producer.sendOffsetsToTransaction(offsets(fields), new ConsumerGroupMetadata(fields[1]));
                case "commit" -> producer.commitTransaction();
                case "abort" -> producer.abortTransaction();
                default -> throw new IllegalArgumentException(line);
            }
        }
        producer.close();
    }

    private static Map<String, Object> settings(String[] fields) {
        Map<String, Object> settings = new HashMap<>();
        for (int i = 1; i < fields.length; i++) {
            String[] setting = fields[i].split("=", 2);
            settings.put(setting[0], setting[1]);
        }
        return settings;
    }

    private static ProducerRecord<byte[], byte[]> record(String[] fields) {
        Integer partition = fields[2].equals("-") ? null : Integer.valueOf(fields[2]);
        var record = new ProducerRecord<>(fields[1], partition, Long.valueOf(fields[3]), bytes(fields[4]), bytes(fields[5]));
        for (int i = 6; i < fields.length; i++) {
            String[] header = fields[i].split("=", 2);
            record.headers().add(new String(bytes(header[0]), StandardCharsets.UTF_8), bytes(header[1]));
        }
        return record;
    }

    private static Map<TopicPartition, OffsetAndMetadata> offsets(String[] fields) {
        var partition = new TopicPartition(fields[2], Integer.parseInt(fields[3]));
        var epoch = Optional.of(Integer.valueOf(fields[5]));
        return Map.of(partition, new OffsetAndMetadata(Long.parseLong(fields[4]), epoch, fields[6]));
    }

    private static byte[] bytes(String field) {
        return field.equals("-") ? null : HexFormat.of().parseHex(field);
    }
}
