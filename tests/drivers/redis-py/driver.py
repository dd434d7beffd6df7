"""The program of redis-py: see ../README.md."""

import json
import sys
import threading
import time
from collections import Counter

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

DRIVER = "redis-py"
PREFIX = f"steps:{DRIVER}:"
NAMES = ["a", "b", "ends", "pipe", "m1", "m2", "watched", "text"]
# How many seconds more than are left TTL may tell.
LATE = 0 if "exact-ends" in sys.argv else 1


def expect(found, wanted):
    if found != wanted:
        raise AssertionError(f"{found!r} instead of {wanted!r}")


def expect_error(call, text):
    try:
        found = call()
    except redis.ResponseError as error:
        if text not in str(error):
            raise AssertionError(f"{error} instead of {text}") from error
    else:
        raise AssertionError(f"{found!r} instead of {text}")


def connect(client, _other):
    expect(client.ping(), True)
    client.delete(*[PREFIX + name for name in NAMES])


def strings(client, _other):
    a, b, none = PREFIX + "a", PREFIX + "b", PREFIX + "none"
    for value in (b"text", bytes(range(256)), b""):
        expect(client.set(a, value), True)
        expect(client.get(a), value)
    expect(client.append(a, "12"), 2)
    expect(client.incrby(a, 30), 42)
    expect(client.mset({a: "1", b: "2"}), True)
    expect(client.mget(a, none, b), [b"1", None, b"2"])
    expect(client.delete(a, none, b), 2)


def expiry(client, _other):
    key = PREFIX + "ends"
    client.set(key, "v", px=150)
    expect(0 < client.pttl(key) <= 150 + 1000 * LATE, True)
    until = time.monotonic() + 5
    while client.get(key) is not None and time.monotonic() < until:
        time.sleep(0.02)
    expect(client.get(key), None)
    client.set(key, "v")
    expect(client.expire(key, 100), True)
    expect(90 <= client.ttl(key) <= 100 + LATE, True)
    expect(client.persist(key), True)
    expect(client.ttl(key), -1)


def pipeline(client, _other):
    pipe = client.pipeline(transaction=False)
    for _ in range(100):
        pipe.incr(PREFIX + "pipe")
    expect(pipe.execute(), list(range(1, 101)))


def multi(client, _other):
    pipe = client.pipeline(transaction=True)
    pipe.set(PREFIX + "m1", "1").incr(PREFIX + "m2").get(PREFIX + "m1")
    expect(pipe.execute(), [True, 1, b"1"])


def watch(client, other):
    key = PREFIX + "watched"
    client.set(key, "5")
    with client.pipeline() as pipe:
        pipe.watch(key)
        expect(pipe.get(key), b"5")
        other.set(key, "5")
        pipe.multi()
        pipe.set(key, "6")
        try:
            pipe.execute()
        except redis.WatchError:
            pass
        else:
            raise AssertionError("EXEC was not refused")
    with client.pipeline() as pipe:
        pipe.watch(key)
        pipe.multi()
        pipe.set(key, "7")
        expect(pipe.execute(), [True])
    expect(client.get(key), b"7")


def scan(client, _other):
    names = {f"{PREFIX}scan:{number}".encode() for number in range(200)}
    client.mset(dict.fromkeys(names, "v"))
    expect(set(client.scan_iter(match=PREFIX + "scan:*", count=30)), names)
    expect(set(client.keys(PREFIX + "scan:*")), names)
    expect(abs(client.time()[0] - time.time()) < 60, True)


def errors(client, _other):
    client.set(PREFIX + "text", "text")
    expect_error(lambda: client.incr(PREFIX + "text"), "value is not an integer or out of range")
    expect_error(lambda: client.execute_command("NOSUCH", "x"), "unknown command 'NOSUCH'")
    expect_error(lambda: client.execute_command("GET"), "wrong number of arguments for 'get' command")
    expect(client.get(PREFIX + "text"), b"text")


def steps(host, port, features):
    client, other = redis.Redis(host, port), redis.Redis(host, port)
    passed, skipped, failed = [], [], {}
    for step in (connect, strings, expiry, pipeline, multi, watch, scan, errors):
        if step is scan and "scan" not in features:
            skipped.append("scan")
            continue
        try:
            step(client, other)
            passed.append(step.__name__)
        except Exception as error:  # whatever it is, it is why the step failed
            failed[step.__name__] = f"{type(error).__name__}: {error}"
    print(json.dumps(dict(driver=DRIVER, version=redis.__version__, passed=passed, skipped=skipped, failed=failed)))
    return 1 if failed else 0


class Counting:
    """One round: every connection counts until `stopped`."""

    def __init__(self, clients, prefix):
        self.stopped = False
        self.errors = Counter()
        self.own = [Counter() for _ in clients]
        self.shared = [Counter() for _ in clients]
        self.threads = [
            threading.Thread(target=self.count, args=(client, prefix, number)) for number, client in enumerate(clients)
        ]
        for thread in self.threads:
            thread.start()

    def count(self, client, prefix, number):
        own = self.own[number]
        while not self.stopped:
            value = self.incr(client, f"{prefix}:{DRIVER}:{number}", own)
            least = own["acknowledged"]
            if value is not None and not least <= value <= least + own["unknown"] + own["gave_up"]:
                own["astray"] += 1
            self.incr(client, f"{prefix}:shared", self.shared[number])

    def incr(self, client, key, tally):
        try:
            value = client.incr(key)
            tally["acknowledged"] += 1
            return value
        except redis.ResponseError as error:
            tally["unknown" if str(error).startswith("UNKNOWN") else "refused"] += 1
            self.errors[str(error)] += 1
        except redis.RedisError as error:
            tally["refused" if "connecting to" in str(error) else "gave_up"] += 1
            self.errors[f"{type(error).__name__}: {error}"] += 1
        time.sleep(0.01)
        return None

    def stop(self):
        self.stopped = True
        for thread in self.threads:
            thread.join()
        return dict(own=self.own, shared=sum(self.shared, Counter()), errors=self.errors)


def incr(host, port, connections, repeats):
    options = {} if repeats == "default" else dict(retry=Retry(NoBackoff(), 0))
    clients = [redis.Redis(host, port, **options) for _ in range(connections)]
    for client in clients:
        client.ping()
    print(json.dumps(dict(driver=DRIVER, version=redis.__version__, connections=connections)), flush=True)
    counting = None
    for line in sys.stdin:
        match line.split():
            case ["count", prefix]:
                counting = Counting(clients, prefix)
            case ["stop"]:
                print(json.dumps(counting.stop()), flush=True)
    return 0


if __name__ == "__main__":
    mode, host, port, *rest = sys.argv[1:]
    sys.exit(steps(host, int(port), rest) if mode == "steps" else incr(host, int(port), int(rest[0]), rest[1]))
