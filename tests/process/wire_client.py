#!/usr/bin/env python3
"""A client of Kasha in the standard library of Python, written from docs/wire.md alone: connects, puts and gets.

    python3 tests/process/wire_client.py 127.0.0.1:7401

It records on no witness, so that an update is done when the primary says that it is synced. It says what it did, and
ends with 0 if all of that came to what it should.
"""
import binascii
import os
import socket
import struct
import sys
import time
from struct import pack

REQUEST, ANSWER, REFUSE, READ, READ_ANSWER, READ_REFUSE, MESSAGE = 1, 3, 4, 8, 9, 10, 32
HELLO, WELCOME, GOODBYE, GET_CONFIGURATION, CONFIGURATION_IS = 1, 2, 3, 8, 9
OPEN_SESSION, SESSION_OPENED, TABLE_REQUEST, TABLE_ANSWER = 10, 11, 15, 16
PUT, INCREMENT, GET = 1, 2, 64
PASSES = (1, 2, 3, 14, 5, 6, 10, 13)  # refusals after which the next attempt may succeed


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def key_bytes(key):
    return pack("<H", len(key)) + key


def value_bytes(value):
    return pack("<I", len(value)) + value


class Fields:
    """Fields in order."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, form):
        values = struct.unpack_from("<" + form, self.data, self.at)
        self.at += struct.calcsize("<" + form)
        return values[0] if len(values) == 1 else values

    def list(self, item):
        return [item() for _ in range(self.take("I"))]

    def string(self):
        return self.take("%ds" % self.take("I")).decode()

    def address(self):
        ip = self.take("%ds" % {4: 4, 6: 16}[self.take("B")])
        return socket.inet_ntop(socket.AF_INET if len(ip) == 4 else socket.AF_INET6, ip), self.take("H")


class Connection:
    def __init__(self, address, core=None):
        self.version = 11  # of the greeting and its answer
        self.socket = socket.create_connection(address, timeout=5)
        self.stream = self.socket.makefile("rb")
        self.ask(pack("<BBBQBQ", HELLO, 12, 12, 0, 0, 0) + (pack("<BHB", 1, *core) if core else b"\0"), WELCOME)
        self.version = 12

    def send(self, kind, payload):
        rest = pack("<HHI", 0x4B53, self.version, kind) + payload
        self.socket.sendall(pack("<II", len(payload), crc32c(rest[4:])) + rest)

    def receive(self):
        head = self.stream.read(16)
        if head.startswith(b"KASHA "):
            raise ConnectionError((head + self.stream.readline()).decode(errors="replace").strip())
        if len(head) < 16 or head[8:12] + head[13:] != pack("<HH", 0x4B53, self.version) + b"\0\0\0":
            raise ConnectionError("the connection is closed, or this is no frame of that version")
        length, checksum = struct.unpack("<II", head[:8])
        payload = self.stream.read(length) if length <= 16 << 20 else b""
        if crc32c(head[12:] + payload) != checksum:
            raise ConnectionError("a damaged frame")
        if head[12] == MESSAGE and payload[0] == GOODBYE:
            raise ConnectionError("the server says goodbye: " + Fields(payload[1:]).string())
        return head[12], payload

    def ask(self, message, answer):
        self.send(MESSAGE, message)
        while True:
            kind, payload = self.receive()
            if kind == MESSAGE and payload[0] == answer:
                return Fields(payload[1:])


class Configuration:
    def __init__(self, f):
        f.take("QQBBBH")
        self.coordinator = f.address()
        f.list(lambda: f.take("QHI") + (f.address(),))  # the members of the coordinator's group
        nodes = f.list(lambda: f.take("HQ") + (f.list(f.address), f.take("B")))
        self.cores = {node: cores for node, _, cores, _ in nodes}
        self.shards = {}
        for _ in range(f.take("I")):
            shard, epoch, primary, phase = f.take("HIHB")
            f.list(lambda: f.take("HBQ")), f.take("Q"), f.list(lambda: f.take("H"))  # members, since, recover_from
            f.list(lambda: f.take("H")), f.take("QB"), f.take("B") and f.take("IH")  # witnesses, list, closing, served
            self.shards[shard] = (epoch, primary, phase)
        f.list(lambda: (f.take("I"), f.string()))
        self.tablets = f.list(lambda: f.take("IHHH"))

    def place(self, table, key):
        """The shard of a key, its epoch, and the primary's core with its address."""
        begin, end = key.find(b"{"), key.find(b"}", key.find(b"{") + 1)
        slot = binascii.crc_hqx(key[begin + 1:end] if 0 <= begin < end - 1 else key, 0) % 16384
        for of, first, last, shard in self.tablets:
            epoch, primary, serving = self.shards[shard]
            if of == table and first <= slot <= last and serving:
                core = shard % len(self.cores[primary])
                return shard, epoch, (primary, core), self.cores[primary][core]
        raise ConnectionError("no shard serves the key")


class Client:
    def __init__(self, address):
        self.seed, self.connections, self.sequence, self.tables, self.reads = address, {}, 0, 0, 0
        self.refresh()
        self.coordinator = Connection(self.configuration.coordinator)
        _, self.client, self.lease, _ = self.coordinator.ask(pack("<BQ", OPEN_SESSION, 1), SESSION_OPENED).take("QQQQ")

    def refresh(self):
        question = pack("<BQ", GET_CONFIGURATION, 0)
        self.configuration = Configuration(Connection(self.seed).ask(question, CONFIGURATION_IS))

    def create_table(self, name):
        self.tables += 1
        request = pack("<BQQB", TABLE_REQUEST, self.client, self.tables, 0) + value_bytes(name.encode())
        answer = self.coordinator.ask(request, TABLE_ANSWER)
        if answer.take("QQB")[2] not in (0, 1):
            sys.exit("the table was not created")
        return answer.take("I")

    def update(self, code, table, key, arguments):
        """The same bytes in every attempt. All updates before it are known: they were made one after the other."""
        self.sequence += 1
        body = pack("<QQQQ", self.client, self.sequence, self.sequence, self.lease)
        body += pack("<BBHI", code, 0, 0, table) + key_bytes(key) + arguments
        return self.attempts(table, key, REQUEST, lambda epoch, attempt: (
            body, (ANSWER, pack("<QQIIB", self.client, self.sequence, epoch, attempt, 1), 32),
            (REFUSE, pack("<QQI", self.client, self.sequence, attempt))))

    def get(self, table, key):
        def read(_epoch, _attempt):
            self.reads += 1
            number = pack("<Q", self.reads)
            payload = number + pack("<IBBH", table, GET, 0, 0) + key_bytes(key)
            return payload, (READ_ANSWER, number, 8), (READ_REFUSE, number)

        result = self.attempts(table, key, READ, read)
        return (struct.unpack_from("<Q", result, 1)[0], result[9:]) if result[0] == 0 else None

    def attempts(self, table, key, kind, form):
        """Asks whoever is primary until it answers. `form` says what to send, and how the answers to it begin."""
        until, attempt = time.monotonic() + 20, 0
        while True:
            attempt += 1
            try:
                shard, epoch, core, address = self.configuration.place(table, key)
                payload, (answer, begins, skip), (refuse, refuses) = form(epoch, attempt)
                connection = self.connections.pop(core, None) or Connection(address, core)
                connection.send(kind, pack("<HHIQQII", shard, 0, epoch, 0, 0, attempt, 0) + payload)
                while True:
                    is_kind, got = connection.receive()
                    if is_kind == answer and got.startswith(begins):
                        self.connections[core] = connection
                        return got[skip:]
                    if is_kind == refuse and got.startswith(refuses):
                        break
                if got[-1] not in PASSES:
                    sys.exit("refused: %d" % got[-1])
                self.connections[core], why = connection, "refused: %d" % got[-1]
            except OSError as error:
                why = str(error)
            if time.monotonic() > until:
                sys.exit("the outcome is unknown after %d attempts: %s" % (attempt, why))
            time.sleep(0.1)
            try:
                self.refresh()
            except OSError:
                pass


def main():
    if len(sys.argv) != 2 or ":" not in sys.argv[1]:
        sys.exit("usage: wire_client.py HOST:PORT of a node")
    host, port = sys.argv[1].rsplit(":", 1)
    client = Client((host, int(port)))
    print("client %d of a cluster with %d shards" % (client.client, len(client.configuration.shards)))
    table = client.create_table("wire_client")
    for key in [b"key-%d" % number for number in range(16)]:
        value = os.urandom(8).hex().encode()
        result = client.update(PUT, table, key, b"\0" + value_bytes(value))
        if result[0] != 0 or client.get(table, key) != (struct.unpack("<Q", result[1:])[0], value):
            sys.exit("%s is not what was put" % key.decode())
    print("put and got 16 keys")
    before = int((client.get(table, b"{key-1}count") or (0, 0))[1])
    result = client.update(INCREMENT, table, b"{key-1}count", pack("<BqB", 0, 5, 0))
    after = int(client.get(table, b"{key-1}count")[1])
    if after != before + 5 or result[:9] != pack("<Bq", 0, after):
        sys.exit("5 more than %d is not %d" % (before, after))
    print("counted from %d to %d" % (before, after))
    if client.get(table, b"nothing") is not None:
        sys.exit("there is a value that nobody has put")
    print("all is well")


if __name__ == "__main__":
    main()
