# What the recipes in redis-py (docs/recipes.md), which stand above this in the program that `cargo xtask drivers` makes, must do.

import threading
import time

run = f"py{time.time_ns()}"


def refused(call, word):
    try:
        call()
    except redis.ResponseError as error:
        assert word in str(error), error
    else:
        raise AssertionError("it was not refused")


def together(*calls):
    threads = [threading.Thread(target=call) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


assert [admit(node, run, f"{run}-{call}", limit=3) for call in (0, 1, 1, 2, 3, 0)] == [True] * 4 + [False, True]
assert 0 < node.ttl(f"calls:{run}") <= 60

assert [charge(node, f"{run}-o", run, 250) for _ in range(3)] == [250] * 3
refused(lambda: charge(node, f"{run}-o", run, 999), "MISMATCH")
assert node.get(f"owed:{run}") == b"250" and node.get(f"charge:{run}-o") == f"{run} 250".encode()

node.mset({f"wallet:{run}a": 100, f"wallet:{run}b": 0})
assert transfer(node, f"{run}-t", f"{run}a", f"{run}b", 30) == 70
assert transfer(node, f"{run}-t", f"{run}a", f"{run}b", 30) == 70
assert transfer(node, f"{run}-u", f"{run}a", f"{run}b", 71) is None
told = []
together(*[lambda n=n: told.append(transfer(node, f"{run}-{n}", f"{run}a", f"{run}b", 10)) for n in range(10)])
assert sorted(left for left in told if left is not None) == [0, 10, 20, 30, 40, 50, 60] and told.count(None) == 3, told
assert node.mget(f"wallet:{run}a", f"wallet:{run}b") == [b"0", b"100"]

for _ in range(2):
    put_job(node, run, "letter", "to Anna")
assert take_job(node, run, "w1-1", seconds=1) == ("letter", b"to Anna")
assert take_job(node, run, "w2-1") is None
time.sleep(1.1)
assert take_job(node, run, "w2-2") == ("letter", b"to Anna")
sent = lambda pipe: pipe.incr(f"sent:{run}")
assert not finish_job(node, run, "letter", "w1-1", sent)
assert finish_job(node, run, "letter", "w2-2", sent)
assert not finish_job(node, run, "letter", "w2-2", sent)
assert node.get(f"sent:{run}") == b"1" and take_job(node, run, "w1-2") is None

for session in range(20):
    node.set(f"session:{run}:{session}", f"cart {session}", ex=5)
assert use_session(node, run, 7) == b"cart 7" and node.ttl(f"session:{run}:7") > 1700
assert use_session(node, run, 99) is None
assert end_sessions(node, run) == 20 and use_session(node, run, 7) is None

first = lock(node, run, seconds=1)
assert first is not None and lock(node, run) is None
assert write_locked(node, run, first, f"book:{run}", "first")
time.sleep(1.1)
second = lock(node, run)
assert second > first
assert not write_locked(node, run, first, f"book:{run}", "late")
assert write_locked(node, run, second, f"book:{run}", "second") and node.get(f"book:{run}") == b"second"
print("all recipes keep what they promise")
