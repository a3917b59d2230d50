#!/usr/bin/env python3
"""A stand-in for torchrun's agent: its store, as far as a client needs it (VALIDATE, SET, GET, ADD, CHECK, WAIT).

torch_store.py PORT; prints the port once it listens (0: the kernel's choice) and runs until it is killed.
"""
import selectors
import socket
import struct
import sys

VALIDATE, SET, GET, ADD, CHECK, WAIT = 0, 1, 3, 4, 5, 6
MAGIC = 0x3C85F7CE
READY, NOT_READY, STOP_WAITING = b"\0", b"\1", b"\0"


class Incomplete(Exception):
    """The rest of a query has not come yet."""


class Query:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, count):
        if len(self.data) - self.at < count:
            raise Incomplete
        self.at += count
        return self.data[self.at - count:self.at]

    def number(self, shape):
        return struct.unpack("<" + shape, self.take(struct.calcsize("<" + shape)))[0]

    def text(self):
        return self.take(self.number("Q"))


class Store:
    def __init__(self, port):
        self.values = {}
        self.waiting = []  # (connection, keys)
        self.selector = selectors.DefaultSelector()
        family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET
        self.listener = socket.create_server(("", port), family=family, dualstack_ipv6=family == socket.AF_INET6)
        self.selector.register(self.listener, selectors.EVENT_READ)
        self.inputs = {}
        print(self.listener.getsockname()[1], flush=True)

    def serve(self):
        while True:
            for key, _ in self.selector.select():
                if key.fileobj is self.listener:
                    connection, _ = self.listener.accept()
                    self.inputs[connection] = b""
                    self.selector.register(connection, selectors.EVENT_READ)
                else:
                    self.read(key.fileobj)

    def read(self, connection):
        try:
            data = connection.recv(65536)
        except ConnectionError:
            data = b""
        if not data:
            self.selector.unregister(connection)
            self.waiting = [one for one in self.waiting if one[0] is not connection]
            del self.inputs[connection]
            connection.close()
            return
        self.inputs[connection] += data
        try:
            while self.inputs[connection]:
                query = Query(self.inputs[connection])
                self.answer(connection, query)
                self.inputs[connection] = self.inputs[connection][query.at:]
        except Incomplete:
            pass

    def answer(self, connection, query):
        kind = query.number("B")
        if kind == VALIDATE:
            assert query.number("I") == MAGIC
        elif kind == SET:
            key = query.text()
            self.values[key] = query.text()
        elif kind == GET:
            value = self.values[query.text()]
            connection.sendall(struct.pack("<Q", len(value)) + value)
        elif kind == ADD:
            key = query.text()
            total = int(self.values.get(key, b"0")) + query.number("q")
            self.values[key] = str(total).encode()
            connection.sendall(struct.pack("<q", total))
        elif kind in (CHECK, WAIT):
            keys = [query.text() for _ in range(query.number("Q"))]
            if kind == WAIT:
                self.waiting.append((connection, keys))
            else:
                connection.sendall(READY if all(key in self.values for key in keys) else NOT_READY)
        else:
            raise ValueError(f"unknown query {kind}")
        self.release()

    def release(self):
        for one in list(self.waiting):
            if all(key in self.values for key in one[1]):
                self.waiting.remove(one)
                one[0].sendall(STOP_WAITING)


if __name__ == "__main__":
    Store(int(sys.argv[1])).serve()
