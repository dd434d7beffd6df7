#!/usr/bin/env python3
"""A client of Kasha in the standard library of Python, written from docs/wire.md alone: connects, puts and gets.

    python3 tests/process/wire_client.py 127.0.0.1:7401

It records on no witness, so that an update is done when the primary says that it is synced. It says what it did, and ends with 0 if all
of that came to what it should.
"""
import binascii
import os
import socket
import struct
import sys
import time

VERSION = 10
MAGIC = 0x4B53
REQUEST, ANSWER, REFUSE, READ, READ_ANSWER, READ_REFUSE, MESSAGE = 1, 3, 4, 8, 9, 10, 32
HELLO, WELCOME, GOODBYE, GET_CONFIGURATION, CONFIGURATION_IS = 1, 2, 3, 8, 9
OPEN_SESSION, SESSION_OPENED, TABLE_REQUEST, TABLE_ANSWER = 10, 11, 15, 16
PUT, INCREMENT, GET = 1, 6, 64
DONE, NOT_FOUND = 0, 2
NEEDS_CONFIGURATION, WAITS = (1, 2, 3, 14), (5, 6, 10, 13)
GIVES_UP_AFTER = 20.0

CASTAGNOLI = [0] * 256
for byte in range(256):
    crc = byte
    for _ in range(8):
        crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    CASTAGNOLI[byte] = crc


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = CASTAGNOLI[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def frame(kind, payload):
    rest = struct.pack("<HBBI", MAGIC, VERSION, kind, 0) + payload
    return struct.pack("<II", len(payload), crc32c(rest)) + rest


def key_bytes(key):
    return struct.pack("<H", len(key)) + key


def value_bytes(value):
    return struct.pack("<I", len(value)) + value


class Fields:
    """Fields in order."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, form):
        values = struct.unpack_from("<" + form, self.data, self.at)
        self.at += struct.calcsize("<" + form)
        return values[0] if len(values) == 1 else values

    def bytes(self, count):
        self.at += count
        return self.data[self.at - count:self.at]

    def string(self):
        return self.bytes(self.take("I")).decode()

    def list(self, item):
        return [item() for _ in range(self.take("I"))]

    def optional(self, item):
        return item() if self.take("B") else None

    def address(self):
        family = {4: (socket.AF_INET, 4), 6: (socket.AF_INET6, 16)}[self.take("B")]
        return socket.inet_ntop(family[0], self.bytes(family[1])), self.take("H")


class Connection:
    def __init__(self, address, core=None):
        self.socket = socket.create_connection(address, timeout=5)
        self.unread = b""
        to = b"\0" if core is None else struct.pack("<BHB", 1, *core)
        self.send(MESSAGE, struct.pack("<BQBQ", HELLO, 0, 0, 0) + to)
        self.message(WELCOME)

    def send(self, kind, payload):
        self.socket.sendall(frame(kind, payload))

    def some(self, count):
        while len(self.unread) < count:
            more = self.socket.recv(65536)
            if not more:
                raise ConnectionError("the server has closed the connection")
            self.unread += more
        taken, self.unread = self.unread[:count], self.unread[count:]
        return taken

    def receive(self):
        head = self.some(16)
        if head.startswith(b"KASHA "):
            raise ConnectionError((head + self.unread).decode(errors="replace").strip())
        length, checksum, magic, version, kind, reserved = struct.unpack("<IIHBBI", head)
        if (magic, version, reserved) != (MAGIC, VERSION, 0) or length > 16 << 20:
            raise ConnectionError("no frame of wire version %d" % VERSION)
        payload = self.some(length)
        if crc32c(head[8:] + payload) != checksum:
            raise ConnectionError("a damaged frame")
        if kind == MESSAGE and payload[0] == GOODBYE:
            raise ConnectionError("the server says goodbye: " + Fields(payload[1:]).string())
        return kind, payload

    def message(self, number):
        while True:
            kind, payload = self.receive()
            if kind == MESSAGE and payload[0] == number:
                return Fields(payload[1:])


class Configuration:
    def __init__(self, f):
        f.take("QQBBBH")
        self.coordinator = f.address()
        nodes = f.list(lambda: (f.take("H"), f.take("Q"), f.list(f.address), f.take("B")))
        self.cores = {node: cores for node, _, cores, _ in nodes}
        self.shards = {}
        for _ in range(f.take("I")):
            shard, epoch, primary, phase = f.take("HIHB")
            f.list(lambda: f.take("HBQ"))
            f.take("Q")
            f.list(lambda: f.take("H"))
            f.list(lambda: f.take("H"))
            f.take("QB")
            f.optional(lambda: f.take("IH"))
            self.shards[shard] = (epoch, primary, phase == 1)
        f.list(lambda: (f.take("I"), f.string()))
        self.tablets = f.list(lambda: f.take("IHHH"))

    def place(self, table, key):
        """The shard of a key, its epoch, and the primary's core with its address."""
        begin = key.find(b"{")
        end = key.find(b"}", begin + 1) if begin >= 0 else -1
        slot = binascii.crc_hqx(key[begin + 1:end] if end > begin + 1 else key, 0) % 16384
        for of, first, last, shard in self.tablets:
            if of == table and first <= slot <= last and self.shards[shard][2]:
                epoch, primary, _ = self.shards[shard]
                core = shard % len(self.cores[primary])
                return shard, epoch, (primary, core), self.cores[primary][core]
        return None


class Client:
    def __init__(self, address):
        self.seed, self.connections, self.sequence, self.reads = address, {}, 0, 0
        self.refresh()
        self.coordinator = Connection(self.configuration.coordinator)
        self.coordinator.send(MESSAGE, struct.pack("<BQ", OPEN_SESSION, 1))
        _, self.client, self.lease, self.time = self.coordinator.message(SESSION_OPENED).take("QQQQ")

    def refresh(self):
        asked = Connection(self.seed)
        asked.send(MESSAGE, struct.pack("<BQ", GET_CONFIGURATION, 0))
        self.configuration = Configuration(asked.message(CONFIGURATION_IS))

    def create_table(self, name):
        text = name.encode()
        self.coordinator.send(MESSAGE, struct.pack("<BQQB", TABLE_REQUEST, self.client, 1, 0) + value_bytes(text))
        answer = self.coordinator.message(TABLE_ANSWER)
        _, _, outcome = answer.take("QQB")
        if outcome not in (0, 1):
            raise RuntimeError("the table was not created: outcome %d" % outcome)
        return answer.take("I")

    def body(self, code, table, arguments):
        """The same bytes in every attempt. All updates before it are known: they were made one after the other."""
        self.sequence += 1
        head = struct.pack("<QQQQ", self.client, self.sequence, self.sequence, self.lease)
        return head + struct.pack("<BBHI", code, 0, 0, table) + arguments

    def update(self, code, table, key, arguments):
        body = self.body(code, table, key_bytes(key) + arguments)

        def is_it(kind, payload, epoch, attempt):
            if kind == ANSWER:
                of, sequence, in_epoch, to, synced = struct.unpack_from("<QQIIB", payload)
                if (of, sequence, in_epoch, to, synced) == (self.client, self.sequence, epoch, attempt, 1):
                    return payload[32:], None
            if kind == REFUSE:
                of, sequence, to, _, _, why = struct.unpack("<QQIIHB", payload)
                if (of, sequence, to) == (self.client, self.sequence, attempt):
                    return None, why
            return None

        return self.attempts(table, key, REQUEST, lambda: body, is_it)

    def get(self, table, key):
        def read():
            self.reads += 1
            return struct.pack("<QIBBH", self.reads, table, GET, 0, 0) + key_bytes(key)

        def is_it(kind, payload, epoch, attempt):
            if kind == READ_ANSWER and struct.unpack_from("<Q", payload)[0] == self.reads:
                return payload[8:], None
            if kind == READ_REFUSE and struct.unpack_from("<Q", payload)[0] == self.reads:
                return None, payload[12]
            return None

        result = self.attempts(table, key, READ, read, is_it)
        return None if result[0] == NOT_FOUND else (struct.unpack_from("<Q", result, 1)[0], result[9:])

    def attempts(self, table, key, kind, payload, is_it):
        """Asks whoever is primary until there is an answer."""
        until, attempt, why = time.monotonic() + GIVES_UP_AFTER, 0, "no shard serves the key"
        while time.monotonic() < until:
            attempt += 1
            place = self.configuration.place(table, key)
            if place is not None:
                shard, epoch, core, address = place
                try:
                    if core not in self.connections:
                        self.connections[core] = Connection(address, core)
                    connection = self.connections[core]
                    envelope = struct.pack("<HHIQQII", shard, 0, epoch, 0, self.time, attempt, 0)
                    connection.send(kind, envelope + payload())
                    found = None
                    while found is None:
                        found = is_it(*connection.receive(), epoch, attempt)
                    result, refusal = found
                    if result is not None:
                        return result
                    if refusal not in NEEDS_CONFIGURATION + WAITS:
                        raise RuntimeError("refused: %d" % refusal)
                    why = "refused: %d" % refusal
                except OSError as error:
                    self.connections.pop(core, None)
                    why = str(error)
            time.sleep(0.1)
            try:
                self.refresh()
            except OSError as error:
                why = str(error)
        raise RuntimeError("the outcome is unknown after %d attempts: %s" % (attempt, why))


def main():
    if len(sys.argv) != 2 or ":" not in sys.argv[1]:
        sys.exit("usage: wire_client.py HOST:PORT of a node")
    host, port = sys.argv[1].rsplit(":", 1)
    client = Client((host, int(port)))
    print("client %d of a cluster with %d shards" % (client.client, len(client.configuration.shards)))
    table = client.create_table("wire_client")
    for number in range(16):
        key, value = b"key-%d" % number, os.urandom(8).hex().encode()
        result = client.update(PUT, table, key, value_bytes(value))
        version = struct.unpack("<Q", result[1:])[0] if result[0] == DONE else sys.exit("put: outcome %d" % result[0])
        if client.get(table, key) != (version, value):
            sys.exit("%s is not what was put" % key.decode())
    print("put and got 16 keys")
    counts = [client.get(table, b"{key-1}count")]
    result = client.update(INCREMENT, table, b"{key-1}count", struct.pack("<q", 5))
    counts.append(client.get(table, b"{key-1}count"))
    before, after = [0 if count is None else int(count[1]) for count in counts]
    if result[0] != DONE or struct.unpack("<qQ", result[1:])[0] != after or after != before + 5:
        sys.exit("5 more than %d is not %d" % (before, after))
    print("counted from %d to %d" % (before, after))
    if client.get(table, b"nothing") is not None:
        sys.exit("there is a value that nobody has put")
    print("all is well")


if __name__ == "__main__":
    main()
