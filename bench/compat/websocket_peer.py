"""A WebSocket server that echoes, and a client that checks it."""

import sys

from websockets.sync import client, server


def serve(port):
    def echo(connection):
        for message in connection:
            connection.send(message)

    with server.serve(echo, "127.0.0.1", port) as listening:
        listening.serve_forever()


def ask(port):
    with client.connect(f"ws://127.0.0.1:{port}/") as connection:
        for message in ["in and out", bytes(range(256)) * 1024, ""]:
            connection.send(message)
            assert connection.recv(timeout=20) == message
        assert connection.ping().wait(20), "no pong"
    print("text, 256 KiB, ping, close")


{"serve": serve, "ask": ask}[sys.argv[1]](int(sys.argv[2]))
