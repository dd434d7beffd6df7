// What the recipes in ioredis (docs/recipes.md), which stand above this in the program that `cargo xtask drivers` makes, must do.

import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";

const run = `js${process.pid}-${Date.now()}`;

const admitted = [];
for (const call of [0, 1, 1, 2, 3, 0]) admitted.push(await admit(node, run, `${run}-${call}`, 3));
assert.deepEqual(admitted, [true, true, true, true, false, true]);
assert.ok((await node.ttl(`calls:${run}`)) > 0);

for (let time = 0; time < 3; time++) assert.equal(await charge(node, `${run}-o`, run, 250), 250);
await assert.rejects(charge(node, `${run}-o`, run, 999), /^ReplyError: MISMATCH/);
assert.deepEqual(await node.mget(`owed:${run}`, `charge:${run}-o`), ["250", `${run} 250`]);

await node.mset(`wallet:${run}a`, 100, `wallet:${run}b`, 0);
assert.equal(await transfer(node, `${run}-t`, `${run}a`, `${run}b`, 30), 70);
assert.equal(await transfer(node, `${run}-t`, `${run}a`, `${run}b`, 30), 70);
assert.equal(await transfer(node, `${run}-u`, `${run}a`, `${run}b`, 71), null);
const orders = Array.from({ length: 10 }, (_, number) => transfer(node, `${run}-${number}`, `${run}a`, `${run}b`, 10));
const told = await Promise.all(orders);
assert.deepEqual(told.filter((left) => left !== null).sort((a, b) => a - b), [0, 10, 20, 30, 40, 50, 60]);
assert.deepEqual(await node.mget(`wallet:${run}a`, `wallet:${run}b`), ["0", "100"]);

for (let time = 0; time < 2; time++) await putJob(node, run, "letter", "to Anna");
assert.deepEqual(await takeJob(node, run, "w1-1", 1), { name: "letter", body: "to Anna" });
assert.equal(await takeJob(node, run, "w2-1"), null);
await sleep(1100);
assert.deepEqual(await takeJob(node, run, "w2-2"), { name: "letter", body: "to Anna" });
const sent = (transaction) => transaction.incr(`sent:${run}`);
assert.equal(await finishJob(node, run, "letter", "w1-1", sent), false);
assert.equal(await finishJob(node, run, "letter", "w2-2", sent), true);
assert.equal(await finishJob(node, run, "letter", "w2-2", sent), false);
assert.equal(await node.get(`sent:${run}`), "1");
assert.equal(await takeJob(node, run, "w1-2"), null);

for (let session = 0; session < 20; session++) await node.set(`session:${run}:${session}`, `cart ${session}`, "EX", 5);
assert.equal(await useSession(node, run, 7), "cart 7");
assert.ok((await node.ttl(`session:${run}:7`)) > 1700);
assert.equal(await useSession(node, run, 99), null);
assert.equal(await endSessions(node, run), 20);
assert.equal(await useSession(node, run, 7), null);

const first = await lock(node, run, 1);
assert.ok(first !== null && (await lock(node, run)) === null);
assert.ok(await writeLocked(node, run, first, `book:${run}`, "first"));
await sleep(1100);
const second = await lock(node, run);
assert.ok(second > first);
assert.equal(await writeLocked(node, run, first, `book:${run}`, "late"), false);
assert.ok(await writeLocked(node, run, second, `book:${run}`, "second"));
assert.equal(await node.get(`book:${run}`), "second");
console.log("all recipes keep what they promise");
node.disconnect();
