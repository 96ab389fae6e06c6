"""The ASGI nucleus inside of Starlette, served by uvicorn over a real socket."""

import asyncio
import threading
import unittest

import httpx
import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.responses import JSONResponse, PlainTextResponse, StreamingResponse
from starlette.routing import Route

from tidegate_nucleus import TidegateNucleus

SERVICE = "tidegate-service-ms"
OPTIONAL = "tidegate-optional"


async def page(request):
    return JSONResponse({"optional": request.state.optional_content})


async def slow(request):
    await asyncio.sleep(0.05)
    return PlainTextResponse("slow")


async def streamed(request):
    async def parts():
        yield "one "
        yield "two"

    return StreamingResponse(parts())


async def events(request):
    async def never():
        await asyncio.Event().wait()
        yield ""

    return StreamingResponse(never(), media_type="text/event-stream")


async def missing(request):
    return PlainTextResponse("missing", status_code=404)


def application():
    routes = [
        Route("/", page),
        Route("/slow", slow),
        Route("/streamed", streamed),
        Route("/events", events),
        Route("/missing", missing),
    ]
    return Starlette(routes=routes, middleware=[Middleware(TidegateNucleus)])


class Server(uvicorn.Server):
    """Runs in a thread, on a free port."""

    def __init__(self, app):
        super().__init__(uvicorn.Config(app, port=0, log_level="warning", lifespan="off"))
        self.ready = threading.Event()

    async def startup(self, sockets=None):
        await super().startup(sockets)
        self.port = self.servers[0].sockets[0].getsockname()[1]
        self.ready.set()


class AsgiNucleus(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server(application())
        cls.thread = threading.Thread(target=cls.server.run)
        cls.thread.start()
        assert cls.server.ready.wait(30), "uvicorn did not start"
        cls.client = httpx.Client(base_url=f"http://127.0.0.1:{cls.server.port}", timeout=30)

    @classmethod
    def tearDownClass(cls):
        cls.client.close()
        cls.server.should_exit = True
        cls.server.force_exit = True
        cls.thread.join()

    def test_the_application_learns_whether_to_include_optional_content(self):
        for value, expected in [(None, True), ("1", True), ("0", False)]:
            told = {"tidegate-optional": value} if value else {}
            answer = self.client.get("/", headers=told)
            self.assertEqual(answer.json(), {"optional": expected}, value)

    def test_an_answer_says_how_long_it_took(self):
        service_ms = float(self.client.get("/slow").headers[SERVICE])
        self.assertGreaterEqual(service_ms, 49.0)
        self.assertIn(SERVICE, self.client.get("/missing").headers)
        self.assertIn(SERVICE, self.client.head("/").headers)

    def test_a_streamed_answer_passes_unmeasured_and_says_whether_it_is_full(self):
        for value in ["1", "0"]:
            answer = self.client.get("/streamed", headers={OPTIONAL: value})
            self.assertEqual(answer.text, "one two")
            self.assertNotIn(SERVICE, answer.headers)
            self.assertEqual(answer.headers[OPTIONAL], value)
        self.assertNotIn(OPTIONAL, self.client.get("/").headers)

    def test_the_head_of_an_event_stream_is_not_held_back(self):
        with self.client.stream("GET", "/events") as answer:
            self.assertEqual(answer.status_code, 200)


if __name__ == "__main__":
    unittest.main()
