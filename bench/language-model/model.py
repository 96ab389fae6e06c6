#!/usr/bin/env python3
"""A server of a language model, without the model: what it does takes the time that a model takes.

    model.py PORT

`POST /generate?prompt=300&tokens=120` answers with events, one for each piece of the text. `GET /stats`
has its counts.

Requests are in one batch of at most 32, and each step makes a token for every one of them. A step is
longer with more requests, but not in proportion: the batch is what makes it fast. A request that enters
has its prompt read first (prefill), and the others wait meanwhile. Prompt and tokens made so far are in
memory; when that is full the request that entered last is thrown out, waits for memory, and has
everything read again when it is back. A request enters when its prompt fits, however much it will grow,
as servers do whose outputs have no known length. So with many long requests it is busy reading what it
has read before.

Time is virtual: steps are due at computed times, and a machine that is late does not make it slower.
"""

import asyncio
import json
import sys
import time
from collections import deque
from urllib.parse import parse_qs, urlsplit

BATCH_MAX = 32
MEMORY_TOKENS = 12_000
PREFILL_TOKENS_PER_SECOND = 10_000
STEP_SECONDS, STEP_SECONDS_PER_REQUEST = 0.005, 0.00015
TOKENS_PER_EVENT = 8
# What is due is worked off at least so often.
PERIOD_SECONDS = 0.005


class Sequence:
    """A request inside."""

    def __init__(self, prompt, tokens):
        self.prompt, self.tokens, self.made = prompt, tokens, 0
        self.events = asyncio.Queue()
        self.gone = False

    def memory(self):
        return self.prompt + self.made


class Model:
    """Batch, memory and queue, on a virtual clock."""

    def __init__(self, now):
        self.now = now
        self.waiting, self.running = deque(), []
        self.counts = {"arrivals": 0, "completions": 0, "left": 0, "thrown_out": 0, "prompt_tokens_read": 0,
                       "prompt_tokens_read_again": 0, "tokens": 0, "batch_max": 0, "busy_s": 0.0}

    def arrive(self, now, sequence):
        self.counts["arrivals"] += 1
        if not self.running and not self.waiting:
            self.now = now
        self.waiting.append(sequence)

    def advance(self, until):
        """Works off every step that begins before `until`."""
        while self.now < until and (self.waiting or self.running):
            begun = self.now
            self.drop_gone()
            self.enter()
            self.step()
            self.counts["busy_s"] += self.now - begun

    def drop_gone(self):
        for name in ("waiting", "running"):
            kept = [each for each in getattr(self, name) if not each.gone]
            self.counts["left"] += len(getattr(self, name)) - len(kept)
            setattr(self, name, deque(kept) if name == "waiting" else kept)

    def held(self):
        return sum(each.memory() for each in self.running)

    def enter(self):
        while self.waiting and len(self.running) < BATCH_MAX:
            first = self.waiting[0]
            if self.running and self.held() + first.memory() > MEMORY_TOKENS:
                return
            self.waiting.popleft()
            self.now += first.memory() / PREFILL_TOKENS_PER_SECOND
            self.counts["prompt_tokens_read"] += first.memory()
            self.counts["prompt_tokens_read_again"] += first.memory() if first.made else 0
            self.running.append(first)
        self.counts["batch_max"] = max(self.counts["batch_max"], len(self.running))

    def step(self):
        if not self.running:
            return
        self.now += STEP_SECONDS + STEP_SECONDS_PER_REQUEST * len(self.running)
        for each in self.running:
            each.made += 1
            if each.made % TOKENS_PER_EVENT == 0 or each.made == each.tokens:
                each.events.put_nowait(each.made)
        self.counts["tokens"] += len(self.running)
        done = [each for each in self.running if each.made == each.tokens]
        self.counts["completions"] += len(done)
        self.running = [each for each in self.running if each.made < each.tokens]
        while len(self.running) > 1 and self.held() > MEMORY_TOKENS:
            self.counts["thrown_out"] += 1
            self.waiting.appendleft(self.running.pop())


async def drive(model):
    while True:
        model.advance(time.monotonic())
        await asyncio.sleep(PERIOD_SECONDS)


async def serve(model, reader, writer):
    try:
        while head := await reader.readuntil(b"\r\n\r\n"):
            lines = head.decode("latin-1").split("\r\n")
            url = urlsplit(lines[0].split()[1])
            if url.path == "/stats":
                body = json.dumps(model.counts).encode()
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
                             b"content-length: %d\r\n\r\n%s" % (len(body), body))
                continue
            query = parse_qs(url.query)
            sequence = Sequence(int(query["prompt"][0]), int(query["tokens"][0]))
            model.arrive(time.monotonic(), sequence)
            await answer(sequence, reader, writer)
    except (asyncio.IncompleteReadError, ConnectionError, KeyError, ValueError, IndexError):
        pass
    finally:
        writer.close()


async def answer(sequence, reader, writer):
    """Events as they are made, until the client leaves: a client that sends anything meanwhile is none of ours."""
    left = asyncio.ensure_future(reader.read(1))
    try:
        begun = False
        while True:
            event = asyncio.ensure_future(sequence.events.get())
            await asyncio.wait({event, left}, return_when=asyncio.FIRST_COMPLETED)
            if left.done():
                event.cancel()
                raise ConnectionError
            if not begun:
                begun = True
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
            data = b"data: %d of %d\n\n" % (event.result(), sequence.tokens)
            writer.write(b"%x\r\n%s\r\n" % (len(data), data))
            if event.result() == sequence.tokens:
                break
            await writer.drain()
    finally:
        left.cancel()
        await asyncio.gather(left, return_exceptions=True)
        sequence.gone = sequence.made < sequence.tokens
    writer.write(b"0\r\n\r\n")
    await writer.drain()


async def main(port):
    model = Model(time.monotonic())
    server = await asyncio.start_server(lambda reader, writer: serve(model, reader, writer), "127.0.0.1", port)
    async with server:
        await drive(model)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
