// The program of ioredis: see ../README.md.
"use strict";

const assert = require("node:assert/strict");
const readline = require("node:readline");
const { setTimeout: sleep } = require("node:timers/promises");
const { Redis, ReplyError } = require("ioredis");

const DRIVER = "ioredis";
const VERSION = require("ioredis/package.json").version;
const PREFIX = `steps:${DRIVER}:`;
const NAMES = ["a", "b", "ends", "pipe", "m1", "m2", "watched", "text"];

// How many seconds more than are left TTL may tell.
const LATE = process.argv.includes("exact-ends") ? 0 : 1;

const print = (value) => console.log(JSON.stringify(value));

function open(host, port, options = {}) {
  const client = new Redis(port, host, options);
  // What is wrong with a connection is told to the commands that wait for it, too.
  client.on("error", () => {});
  return client;
}

const STEPS = {
  async connect(client) {
    assert.equal(await client.ping(), "PONG");
    await client.del(NAMES.map((name) => PREFIX + name));
  },

  async strings(client) {
    const [a, b, none] = ["a", "b", "none"].map((name) => PREFIX + name);
    for (const value of [Buffer.from("text"), Buffer.from([...Array(256).keys()]), Buffer.alloc(0)]) {
      assert.equal(await client.set(a, value), "OK");
      assert.deepEqual(await client.getBuffer(a), value);
    }
    assert.equal(await client.append(a, "12"), 2);
    assert.equal(await client.incrby(a, 30), 42);
    assert.equal(await client.mset(a, "1", b, "2"), "OK");
    assert.deepEqual(await client.mget(a, none, b), ["1", null, "2"]);
    assert.equal(await client.del(a, none, b), 2);
  },

  async expiry(client) {
    const key = PREFIX + "ends";
    await client.set(key, "v", "PX", 150);
    const millis = await client.pttl(key);
    assert.ok(millis > 0 && millis <= 150 + 1000 * LATE, `${millis} ms are left`);
    const until = Date.now() + 5000;
    while ((await client.get(key)) !== null && Date.now() < until) await sleep(20);
    assert.equal(await client.get(key), null);
    await client.set(key, "v");
    assert.equal(await client.expire(key, 100), 1);
    const left = await client.ttl(key);
    assert.ok(left >= 90 && left <= 100 + LATE, `${left} s are left`);
    assert.equal(await client.persist(key), 1);
    assert.equal(await client.ttl(key), -1);
  },

  async pipeline(client) {
    const pipeline = client.pipeline();
    for (let count = 0; count < 100; count++) pipeline.incr(PREFIX + "pipe");
    const wanted = Array.from({ length: 100 }, (_, index) => [null, index + 1]);
    assert.deepEqual(await pipeline.exec(), wanted);
  },

  async multi(client) {
    const [m1, m2] = [PREFIX + "m1", PREFIX + "m2"];
    const replies = await client.multi().set(m1, "1").incr(m2).get(m1).exec();
    assert.deepEqual(replies, [[null, "OK"], [null, 1], [null, "1"]]);
  },

  async watch(client, other) {
    const key = PREFIX + "watched";
    await client.set(key, "5");
    await client.watch(key);
    assert.equal(await client.get(key), "5");
    await other.set(key, "5");
    assert.equal(await client.multi().set(key, "6").exec(), null);
    await client.watch(key);
    assert.deepEqual(await client.multi().set(key, "7").exec(), [[null, "OK"]]);
    assert.equal(await client.get(key), "7");
  },

  async scan(client) {
    const names = Array.from({ length: 200 }, (_, number) => `${PREFIX}scan:${number}`).sort();
    await client.mset(names.flatMap((name) => [name, "v"]));
    const found = new Set();
    for await (const keys of client.scanStream({ match: `${PREFIX}scan:*`, count: 30 })) {
      keys.forEach((key) => found.add(key));
    }
    assert.deepEqual([...found].sort(), names);
    assert.deepEqual((await client.keys(`${PREFIX}scan:*`)).sort(), names);
    const [seconds] = await client.time();
    assert.ok(Math.abs(Number(seconds) - Date.now() / 1000) < 60);
  },

  async errors(client) {
    const key = PREFIX + "text";
    await client.set(key, "text");
    await assert.rejects(client.incr(key), /value is not an integer or out of range/);
    await assert.rejects(client.call("NOSUCH", "x"), /unknown command 'NOSUCH'/);
    await assert.rejects(client.call("GET"), /wrong number of arguments for 'get' command/);
    assert.equal(await client.get(key), "text");
  },
};

async function steps(host, port, features) {
  const [client, other] = [open(host, port), open(host, port)];
  const [passed, skipped, failed] = [[], [], {}];
  for (const [name, step] of Object.entries(STEPS)) {
    if (name === "scan" && !features.includes("scan")) {
      skipped.push(name);
      continue;
    }
    try {
      await step(client, other);
      passed.push(name);
    } catch (error) {
      failed[name] = String(error);
    }
  }
  print({ driver: DRIVER, version: VERSION, passed, skipped, failed });
  process.exit(Object.keys(failed).length === 0 ? 0 : 1);
}

const newTally = () => ({ acknowledged: 0, unknown: 0, gave_up: 0, refused: 0, astray: 0 });

/** One round: every connection counts until `stop`. */
class Counting {
  stopped = false;
  errors = {};
  shared = newTally();

  constructor(clients, prefix) {
    this.own = clients.map(newTally);
    this.tasks = clients.map((client, number) => this.count(client, prefix, number));
  }

  async count(client, prefix, number) {
    const own = this.own[number];
    while (!this.stopped) {
      const value = await this.incr(client, `${prefix}:${DRIVER}:${number}`, own);
      const least = own.acknowledged;
      if (value !== null && (value < least || value > least + own.unknown + own.gave_up)) own.astray++;
      await this.incr(client, `${prefix}:shared`, this.shared);
    }
  }

  async incr(client, key, tally) {
    try {
      const value = await client.incr(key);
      tally.acknowledged++;
      return value;
    } catch (error) {
      if (!(error instanceof ReplyError)) tally.gave_up++;
      else if (error.message.startsWith("UNKNOWN")) tally.unknown++;
      else tally.refused++;
      this.errors[error.message] = (this.errors[error.message] ?? 0) + 1;
      await sleep(10);
      return null;
    }
  }

  async stop() {
    this.stopped = true;
    await Promise.all(this.tasks);
    return { own: this.own, shared: this.shared, errors: this.errors };
  }
}

async function incr(host, port, connections, repeats) {
  const off = { maxRetriesPerRequest: 0, autoResendUnfulfilledCommands: false };
  const clients = Array.from({ length: connections }, () => open(host, port, repeats === "off" ? off : {}));
  await Promise.all(clients.map((client) => client.ping()));
  print({ driver: DRIVER, version: VERSION, connections });
  let counting;
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const [word, prefix] = line.split(" ");
    if (word === "count") counting = new Counting(clients, prefix);
    else if (word === "stop") print(await counting.stop());
  }
  process.exit(0);
}

const [mode, host, port, ...rest] = process.argv.slice(2);
if (mode === "steps") steps(host, Number(port), rest);
else incr(host, Number(port), Number(rest[0]), rest[1]);
