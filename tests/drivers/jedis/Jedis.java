import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeSet;
import redis.clients.jedis.AbstractTransaction;
import redis.clients.jedis.Pipeline;
import redis.clients.jedis.RedisClient;
import redis.clients.jedis.Response;
import redis.clients.jedis.ScanIteration;
import redis.clients.jedis.exceptions.JedisConnectionException;
import redis.clients.jedis.exceptions.JedisDataException;
import redis.clients.jedis.params.SetParams;

/** The program of Jedis: see ../README.md. */
final class Jedis extends Program {
    private Jedis(String version) {
        super("jedis", version);
    }

    @Override
    Map<String, Step> steps(String host, int port) {
        RedisClient client = RedisClient.create(host, port);
        RedisClient other = RedisClient.create(host, port);
        Map<String, Step> steps = new LinkedHashMap<>();
        steps.put("connect", () -> connect(client));
        steps.put("strings", () -> strings(client));
        steps.put("expiry", () -> expiry(client));
        steps.put("pipeline", () -> pipeline(client));
        steps.put("multi", () -> multi(client));
        steps.put("watch", () -> watch(client, other));
        steps.put("scan", () -> scan(client));
        steps.put("errors", () -> errors(client));
        return steps;
    }

    private void connect(RedisClient client) {
        expect(client.ping(), "PONG");
        client.del(NAMES.stream().map(this::key).toArray(String[]::new));
    }

    private void strings(RedisClient client) {
        String a = key("a");
        String b = key("b");
        String none = key("none");
        byte[] bytes = new byte[256];
        for (int index = 0; index < bytes.length; index++) {
            bytes[index] = (byte) index;
        }
        byte[] name = a.getBytes(StandardCharsets.UTF_8);
        for (byte[] value : List.of("text".getBytes(StandardCharsets.UTF_8), bytes, new byte[0])) {
            expect(client.set(name, value), "OK");
            expect(Arrays.equals(client.get(name), value), true);
        }
        expect(client.append(a, "12"), 2L);
        expect(client.incrBy(a, 30), 42L);
        expect(client.mset(a, "1", b, "2"), "OK");
        expect(client.mget(a, none, b), Arrays.asList("1", null, "2"));
        expect(client.del(a, none, b), 2L);
    }

    private void expiry(RedisClient client) {
        String ends = key("ends");
        client.set(ends, "v", SetParams.setParams().px(150));
        long left = client.pttl(ends);
        expect(left > 0 && left <= 150 + 1000 * late(), true);
        for (int tries = 0; tries < 250 && client.get(ends) != null; tries++) {
            sleep(20);
        }
        expect(client.get(ends) == null, true);
        client.set(ends, "v");
        expect(client.expire(ends, 100), 1L);
        left = client.ttl(ends);
        expect(left >= 90 && left <= 100 + late(), true);
        expect(client.persist(ends), 1L);
        expect(client.ttl(ends), -1L);
    }

    private void pipeline(RedisClient client) {
        List<Response<Long>> replies = new ArrayList<>();
        try (Pipeline pipeline = client.pipelined()) {
            for (int count = 0; count < 100; count++) {
                replies.add(pipeline.incr(key("pipe")));
            }
            pipeline.sync();
        }
        for (int index = 0; index < replies.size(); index++) {
            expect(replies.get(index).get(), index + 1L);
        }
    }

    private void multi(RedisClient client) {
        try (AbstractTransaction transaction = client.multi()) {
            transaction.set(key("m1"), "1");
            transaction.incr(key("m2"));
            transaction.get(key("m1"));
            expect(transaction.exec(), List.of("OK", 1L, "1"));
        }
    }

    private void watch(RedisClient client, RedisClient other) {
        String watched = key("watched");
        client.set(watched, "5");
        try (AbstractTransaction transaction = client.transaction(false)) {
            transaction.watch(watched);
            expect(client.get(watched), "5");
            other.set(watched, "5");
            transaction.multi();
            transaction.set(watched, "6");
            expect(transaction.exec() == null, true);
        }
        try (AbstractTransaction transaction = client.transaction(false)) {
            transaction.watch(watched);
            transaction.multi();
            transaction.set(watched, "7");
            expect(transaction.exec(), List.of("OK"));
        }
        expect(client.get(watched), "7");
    }

    private void scan(RedisClient client) {
        Collection<String> names = new TreeSet<>();
        List<String> pairs = new ArrayList<>();
        for (int number = 0; number < 200; number++) {
            names.add(key("scan:" + number));
            pairs.addAll(List.of(key("scan:" + number), "v"));
        }
        client.mset(pairs.toArray(String[]::new));
        Collection<String> found = new TreeSet<>();
        ScanIteration pages = client.scanIteration(30, key("scan:*"));
        while (!pages.isIterationCompleted()) {
            found.addAll(pages.nextBatch().getResult());
        }
        expect(found, names);
        expect(new TreeSet<>(client.keys(key("scan:*"))), names);
        List<?> time = (List<?>) client.sendCommand(() -> "TIME".getBytes(StandardCharsets.US_ASCII));
        long seconds = Long.parseLong(new String((byte[]) time.get(0), StandardCharsets.US_ASCII));
        expect(Math.abs(seconds - System.currentTimeMillis() / 1000) < 60, true);
    }

    private void errors(RedisClient client) {
        client.set(key("text"), "text");
        expectError(() -> client.incr(key("text")), "value is not an integer or out of range");
        expectError(() -> client.sendCommand(() -> "NOSUCH".getBytes(StandardCharsets.US_ASCII), "x"), "unknown command 'NOSUCH'");
        expectError(
                () -> client.sendCommand(() -> "GET".getBytes(StandardCharsets.US_ASCII)),
                "wrong number of arguments for 'get' command");
        expect(client.get(key("text")), "text");
    }

    /** The driver repeats no command by itself, so nothing has to be switched off. */
    @Override
    Counter open(String host, int port, boolean repeats) {
        RedisClient client = RedisClient.create(host, port);
        client.ping();
        return client::incr;
    }

    @Override
    String reply(RuntimeException error) {
        return error instanceof JedisDataException ? error.getMessage() : null;
    }

    @Override
    boolean isUnsent(RuntimeException error) {
        return error instanceof JedisConnectionException && error.getMessage().startsWith("Failed to connect");
    }

    public static void main(String[] words) throws IOException, InterruptedException {
        Properties properties = new Properties();
        properties.load(RedisClient.class.getResourceAsStream("/META-INF/maven/redis.clients/jedis/pom.properties"));
        new Jedis(properties.getProperty("version")).main(List.of(words));
    }
}
