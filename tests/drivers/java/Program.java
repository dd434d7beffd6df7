import com.google.gson.Gson;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

/** What the programs of all drivers for Java have in common: see ../README.md. */
abstract class Program {
    static final List<String> NAMES = List.of("a", "b", "ends", "pipe", "m1", "m2", "watched", "text");

    private List<String> features = List.of();

    final String driver;
    final String version;

    Program(String driver, String version) {
        this.driver = driver;
        this.version = version;
    }

    interface Step {
        void run() throws Exception;
    }

    /** A connection that counts. */
    interface Counter {
        long incr(String key);
    }

    /** The steps by their names, in order. */
    abstract Map<String, Step> steps(String host, int port);

    /** Opens a connection, which repeats nothing by itself if it is told so. */
    abstract Counter open(String host, int port, boolean repeats);

    /** What the server said, if this error is an error reply; else null. */
    abstract String reply(RuntimeException error);

    /** How many seconds more than are left TTL may tell. */
    long late() {
        return features.contains("exact-ends") ? 0 : 1;
    }

    /** Whether this error says that there was no connection, so that nothing was sent. */
    abstract boolean isUnsent(RuntimeException error);

    String key(String name) {
        return "steps:" + driver + ":" + name;
    }

    static void expect(Object found, Object wanted) {
        if (!wanted.equals(found)) {
            throw new AssertionError(found + " instead of " + wanted);
        }
    }

    void expectError(Runnable call, String text) {
        try {
            call.run();
        } catch (RuntimeException error) {
            String reply = reply(error);
            if (reply != null && reply.contains(text)) {
                return;
            }
            throw new AssertionError(error + " instead of " + text);
        }
        throw new AssertionError("no error instead of " + text);
    }

    static void say(Object value) {
        System.out.println(new Gson().toJson(value));
        System.out.flush();
    }

    private int goThroughSteps(String host, int port) {
        List<String> passed = new ArrayList<>();
        List<String> skipped = new ArrayList<>();
        Map<String, String> failed = new LinkedHashMap<>();
        for (Map.Entry<String, Step> step : steps(host, port).entrySet()) {
            String name = step.getKey();
            if (name.equals("scan") && !features.contains("scan")) {
                skipped.add(name);
                continue;
            }
            try {
                step.getValue().run();
                passed.add(name);
            } catch (Exception | AssertionError error) {
                failed.put(name, error.toString());
            }
        }
        say(Map.of("driver", driver, "version", version, "passed", passed, "skipped", skipped, "failed", failed));
        return failed.isEmpty() ? 0 : 1;
    }

    /** Has the names of the line of JSON. */
    static final class Tally {
        long acknowledged;
        long unknown;
        long gave_up;
        long refused;
        long astray;

        void add(Tally other) {
            acknowledged += other.acknowledged;
            unknown += other.unknown;
            gave_up += other.gave_up;
            refused += other.refused;
        }
    }

    /** One round: every connection counts until it is stopped. */
    private final class Round {
        private final List<Thread> threads = new ArrayList<>();
        private final List<Tally> own = new ArrayList<>();
        private final List<Tally> shared = new ArrayList<>();
        private final Map<String, Integer> errors = new TreeMap<>();
        private volatile boolean stopped;

        Round(List<Counter> connections, String prefix) {
            for (int number = 0; number < connections.size(); number++) {
                Counter connection = connections.get(number);
                String key = prefix + ":" + driver + ":" + number;
                Tally mine = new Tally();
                Tally ours = new Tally();
                own.add(mine);
                shared.add(ours);
                threads.add(new Thread(() -> count(connection, key, mine, prefix + ":shared", ours)));
            }
            threads.forEach(Thread::start);
        }

        private void count(Counter connection, String key, Tally mine, String sharedKey, Tally ours) {
            while (!stopped) {
                Long value = incr(connection, key, mine);
                long least = mine.acknowledged;
                if (value != null && (value < least || value > least + mine.unknown + mine.gave_up)) {
                    mine.astray++;
                }
                incr(connection, sharedKey, ours);
            }
        }

        private Long incr(Counter connection, String key, Tally tally) {
            try {
                long value = connection.incr(key);
                tally.acknowledged++;
                return value;
            } catch (RuntimeException error) {
                String reply = reply(error);
                if (isUnsent(error)) {
                    tally.refused++;
                } else if (reply == null) {
                    tally.gave_up++;
                } else if (reply.startsWith("UNKNOWN")) {
                    tally.unknown++;
                } else {
                    tally.refused++;
                }
                synchronized (errors) {
                    errors.merge(reply == null ? error.toString() : reply, 1, Integer::sum);
                }
            }
            sleep(10);
            return null;
        }

        Object stop() throws InterruptedException {
            stopped = true;
            for (Thread thread : threads) {
                thread.join();
            }
            Tally sum = new Tally();
            shared.forEach(sum::add);
            return Map.of("own", own, "shared", sum, "errors", errors);
        }
    }

    static void sleep(long millis) {
        try {
            Thread.sleep(millis);
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }

    private void count(String host, int port, int connections, boolean repeats) throws IOException, InterruptedException {
        List<Counter> counters = new ArrayList<>();
        for (int number = 0; number < connections; number++) {
            counters.add(open(host, port, repeats));
        }
        say(Map.of("driver", driver, "version", version, "connections", connections));
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        Round round = null;
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            if (line.startsWith("count ")) {
                round = new Round(counters, line.substring("count ".length()));
            } else {
                say(round.stop());
            }
        }
    }

    void main(List<String> words) throws IOException, InterruptedException {
        String host = words.get(1);
        int port = Integer.parseInt(words.get(2));
        List<String> rest = words.subList(3, words.size());
        int code = 0;
        if (words.get(0).equals("steps")) {
            features = rest;
            code = goThroughSteps(host, port);
        } else {
            count(host, port, Integer.parseInt(rest.get(0)), rest.get(1).equals("default"));
        }
        // Threads of the driver may go on.
        System.exit(code);
    }
}
