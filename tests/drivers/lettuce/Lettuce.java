import io.lettuce.core.ClientOptions;
import io.lettuce.core.KeyValue;
import io.lettuce.core.LettuceFutures;
import io.lettuce.core.LettuceVersion;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisCommandExecutionException;
import io.lettuce.core.RedisConnectionException;
import io.lettuce.core.RedisFuture;
import io.lettuce.core.ScanArgs;
import io.lettuce.core.ScanIterator;
import io.lettuce.core.SetArgs;
import io.lettuce.core.TransactionResult;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.api.async.RedisAsyncCommands;
import io.lettuce.core.api.sync.RedisCommands;
import io.lettuce.core.codec.ByteArrayCodec;
import io.lettuce.core.codec.StringCodec;
import io.lettuce.core.output.StatusOutput;
import io.lettuce.core.protocol.CommandArgs;
import io.lettuce.core.protocol.ProtocolKeyword;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import java.util.stream.Stream;

/** The program of Lettuce: see ../README.md. */
final class Lettuce extends Program {
    /** The threads of a client serve all its connections. */
    private RedisClient counting;

    private Lettuce() {
        // Behind the version stands a commit.
        super("lettuce", LettuceVersion.getVersion().split("/")[0]);
    }

    @Override
    Map<String, Step> steps(String host, int port) {
        RedisClient client = RedisClient.create("redis://" + host + ":" + port);
        StatefulRedisConnection<String, String> connection = client.connect();
        RedisCommands<String, String> one = connection.sync();
        RedisCommands<String, String> other = client.connect().sync();
        Map<String, Step> steps = new LinkedHashMap<>();
        steps.put("connect", () -> connect(one));
        steps.put("strings", () -> strings(one, client.connect(ByteArrayCodec.INSTANCE).sync()));
        steps.put("expiry", () -> expiry(one));
        steps.put("pipeline", () -> pipeline(connection));
        steps.put("multi", () -> multi(one));
        steps.put("watch", () -> watch(one, other));
        steps.put("scan", () -> scan(one));
        steps.put("errors", () -> errors(one));
        return steps;
    }

    private void connect(RedisCommands<String, String> one) {
        expect(one.ping(), "PONG");
        one.del(NAMES.stream().map(this::key).toArray(String[]::new));
    }

    private void strings(RedisCommands<String, String> one, RedisCommands<byte[], byte[]> binary) {
        String a = key("a");
        String b = key("b");
        String none = key("none");
        byte[] bytes = new byte[256];
        for (int index = 0; index < bytes.length; index++) {
            bytes[index] = (byte) index;
        }
        byte[] name = a.getBytes(StandardCharsets.UTF_8);
        for (byte[] value : List.of("text".getBytes(StandardCharsets.UTF_8), bytes, new byte[0])) {
            expect(binary.set(name, value), "OK");
            expect(Arrays.equals(binary.get(name), value), true);
        }
        expect(one.append(a, "12"), 2L);
        expect(one.incrby(a, 30), 42L);
        expect(one.mset(Map.of(a, "1", b, "2")), "OK");
        expect(one.mget(a, none, b), List.of(KeyValue.just(a, "1"), KeyValue.empty(none), KeyValue.just(b, "2")));
        expect(one.del(a, none, b), 2L);
    }

    private void expiry(RedisCommands<String, String> one) {
        String ends = key("ends");
        one.set(ends, "v", SetArgs.Builder.px(150));
        long left = one.pttl(ends);
        expect(left > 0 && left <= 150 + 1000 * late(), true);
        for (int tries = 0; tries < 250 && one.get(ends) != null; tries++) {
            sleep(20);
        }
        expect(one.get(ends) == null, true);
        one.set(ends, "v");
        expect(one.expire(ends, 100), true);
        left = one.ttl(ends);
        expect(left >= 90 && left <= 100 + late(), true);
        expect(one.persist(ends), true);
        expect(one.ttl(ends), -1L);
    }

    private void pipeline(StatefulRedisConnection<String, String> connection) throws Exception {
        RedisAsyncCommands<String, String> commands = connection.async();
        connection.setAutoFlushCommands(false);
        List<RedisFuture<Long>> replies = new ArrayList<>();
        for (int count = 0; count < 100; count++) {
            replies.add(commands.incr(key("pipe")));
        }
        connection.flushCommands();
        connection.setAutoFlushCommands(true);
        expect(LettuceFutures.awaitAll(Duration.ofSeconds(10), replies.toArray(RedisFuture[]::new)), true);
        for (int index = 0; index < replies.size(); index++) {
            expect(replies.get(index).get(), index + 1L);
        }
    }

    private void multi(RedisCommands<String, String> one) {
        one.multi();
        one.set(key("m1"), "1");
        one.incr(key("m2"));
        one.get(key("m1"));
        expect(one.exec().stream().toList(), List.of("OK", 1L, "1"));
    }

    private void watch(RedisCommands<String, String> one, RedisCommands<String, String> other) {
        String watched = key("watched");
        one.set(watched, "5");
        one.watch(watched);
        expect(one.get(watched), "5");
        other.set(watched, "5");
        one.multi();
        one.set(watched, "6");
        expect(one.exec().wasDiscarded(), true);
        one.watch(watched);
        one.multi();
        one.set(watched, "7");
        TransactionResult done = one.exec();
        expect(done.wasDiscarded(), false);
        expect(done.stream().toList(), List.of("OK"));
        expect(one.get(watched), "7");
    }

    private void scan(RedisCommands<String, String> one) {
        Map<String, String> pairs = new LinkedHashMap<>();
        for (int number = 0; number < 200; number++) {
            pairs.put(key("scan:" + number), "v");
        }
        one.mset(pairs);
        Collection<String> names = new TreeSet<>(pairs.keySet());
        Stream<String> found = ScanIterator.scan(one, ScanArgs.Builder.matches(key("scan:*")).limit(30)).stream();
        expect(new TreeSet<>(found.toList()), names);
        expect(new TreeSet<>(one.keys(key("scan:*"))), names);
        long seconds = Long.parseLong(one.time().get(0));
        expect(Math.abs(seconds - System.currentTimeMillis() / 1000) < 60, true);
    }

    private static void dispatch(RedisCommands<String, String> one, String word, String... words) {
        ProtocolKeyword keyword = new ProtocolKeyword() {
            @Override
            public byte[] getBytes() {
                return word.getBytes(StandardCharsets.US_ASCII);
            }

            @Override
            public String toString() {
                return word;
            }
        };
        CommandArgs<String, String> arguments = new CommandArgs<>(StringCodec.UTF8);
        List.of(words).forEach(arguments::add);
        one.dispatch(keyword, new StatusOutput<>(StringCodec.UTF8), arguments);
    }

    private void errors(RedisCommands<String, String> one) {
        one.set(key("text"), "text");
        expectError(() -> one.incr(key("text")), "value is not an integer or out of range");
        expectError(() -> dispatch(one, "NOSUCH", "x"), "unknown command 'NOSUCH'");
        expectError(() -> dispatch(one, "GET"), "wrong number of arguments for 'get' command");
        expect(one.get(key("text")), "text");
    }

    @Override
    Counter open(String host, int port, boolean repeats) {
        if (counting == null) {
            counting = RedisClient.create("redis://" + host + ":" + port);
            // With it, what was sent on a connection that breaks is sent again on the next one.
            counting.setOptions(ClientOptions.builder().autoReconnect(repeats).build());
        }
        return new Counter() {
            private StatefulRedisConnection<String, String> connection = counting.connect();

            @Override
            public long incr(String key) {
                if (!repeats && !connection.isOpen()) {
                    connection.close();
                    connection = counting.connect();
                }
                return connection.sync().incr(key);
            }
        };
    }

    @Override
    String reply(RuntimeException error) {
        return error instanceof RedisCommandExecutionException ? error.getMessage() : null;
    }

    @Override
    boolean isUnsent(RuntimeException error) {
        return error instanceof RedisConnectionException && error.getMessage().startsWith("Unable to connect");
    }

    public static void main(String[] words) throws IOException, InterruptedException {
        new Lettuce().main(List.of(words));
    }
}
