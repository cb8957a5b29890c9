"""Lower bounds for a round: the same bytes over plain sockets, and over a minimal web server.

    python benchmarks/floors.py {sockets,echo,durable}-server CLIENTS DIM ROUNDS PORT OUT
    python benchmarks/floors.py {sockets,echo}-client CLIENT DIM ROUNDS PORT

rounds.py starts one process for each command. A server writes the end times of its rounds to OUT.
"""

import asyncio
import json
import os
import socket
import sys
import tempfile
import threading
import time
from pathlib import Path

import httpx
import numpy as np


class Barrier:
    """The rows of all clients, their mean, and one time stamp per round."""

    def __init__(self, clients: int, dim: int) -> None:
        self.rows = np.zeros((clients, dim), np.float32)
        self.model = np.zeros(dim, np.float32)
        self.stamps: list[float] = []

    def average(self) -> None:
        np.add.reduce(self.rows, 0, out=self.model)
        self.model *= np.float32(1 / len(self.rows))
        self.stamps.append(time.time())


def sockets_server(clients: int, dim: int, rounds: int, port: int, out: Path) -> None:
    state = Barrier(clients, dim)
    barrier = threading.Barrier(clients, action=state.average)

    def serve(connection: socket.socket, row: int) -> None:
        view, model = state.rows[row].data.cast("B"), state.model.data.cast("B")
        for _ in range(rounds):
            received = 0
            while received < len(view):
                received += connection.recv_into(view[received:])
            barrier.wait()
            connection.sendall(model)

    with socket.create_server(("127.0.0.1", port), backlog=64) as server:
        threads = [
            threading.Thread(target=serve, args=(server.accept()[0], i)) for i in range(clients)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    out.write_text(json.dumps(state.stamps))


def sockets_client(dim: int, rounds: int, port: int) -> None:
    mine, theirs = np.ones(dim, np.float32), np.empty(dim, np.float32)
    while True:
        try:
            connection = socket.create_connection(("127.0.0.1", port))
            break
        except OSError:
            time.sleep(0.05)  # The server does not listen yet.
    view = theirs.data.cast("B")
    for _ in range(rounds):
        connection.sendall(mine.data.cast("B"))
        received = 0
        while received < len(view):
            received += connection.recv_into(view[received:])


def echo_server(clients: int, dim: int, rounds: int, port: int, out: Path, durable: bool) -> None:
    import uvicorn
    from fastapi import FastAPI, Request, Response

    app, state = FastAPI(), Barrier(clients, dim)
    arrived: list[int] = []
    ready: list[asyncio.Event] = [asyncio.Event()]
    files = Path(tempfile.mkdtemp(dir=out.parent))

    def write(data: memoryview, name: str) -> None:
        with (files / name).open("wb", buffering=0) as file:
            while data:
                data = data[file.write(data) :]
            os.fsync(file.fileno())

    @app.post("/{client}")
    async def post(client: int, request: Request) -> Response:
        view, at = state.rows[client].data.cast("B"), 0
        async for chunk in request.stream():
            view[at : at + len(chunk)] = chunk
            at += len(chunk)
        if durable:
            await asyncio.to_thread(write, view, str(client))
        arrived.append(client)
        event = ready[0]
        if len(arrived) == clients:
            arrived.clear()
            ready[0] = asyncio.Event()
            await asyncio.to_thread(state.average)
            event.set()
            if len(state.stamps) == rounds:
                await asyncio.to_thread(out.write_text, json.dumps(state.stamps))
        await event.wait()
        return Response(bytes(state.model.data.cast("B")), media_type="application/octet-stream")

    uvicorn.run(app, host="127.0.0.1", port=port, log_level="error", loop="uvloop", backlog=256)


def echo_client(client: int, dim: int, rounds: int, port: int) -> None:
    mine = np.ones(dim, np.float32).tobytes()
    with httpx.Client(timeout=600) as http:
        for _ in range(rounds):
            while True:
                try:
                    answer = http.post(f"http://127.0.0.1:{port}/{client}", content=mine)
                    break
                except httpx.ConnectError:
                    time.sleep(0.1)  # The server does not listen yet.
            assert len(answer.content) == 4 * dim


def main() -> None:
    """Runs one process of a measurement."""
    name, *rest = sys.argv[1:]
    match name:
        case "sockets-server":
            sockets_server(*map(int, rest[:4]), Path(rest[4]))
        case "sockets-client":
            sockets_client(*map(int, rest[1:]))
        case "echo-server" | "durable-server":
            echo_server(*map(int, rest[:4]), Path(rest[4]), name == "durable-server")
        case "echo-client":
            echo_client(*map(int, rest))


if __name__ == "__main__":
    main()
