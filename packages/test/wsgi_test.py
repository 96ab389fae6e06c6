"""The WSGI nucleus inside of Flask, served over a real socket and judged by wsgiref's validator."""

import threading
import time
import unittest
from wsgiref.validate import validator

import httpx
from flask import Flask, Response, jsonify, request
from tidegate_nucleus import TidegateWsgiNucleus
from werkzeug.serving import make_server

SERVICE = "tidegate-service-ms"
OPTIONAL = "tidegate-optional"


def application():
    app = Flask(__name__)

    @app.get("/")
    def page():
        return jsonify(optional=request.environ["tidegate.optional_content"])

    @app.get("/slow")
    def slow():
        time.sleep(0.05)
        return "slow"

    @app.get("/parts")
    def parts():
        return Response(iter(["one ", "two"]))

    @app.get("/events")
    def events():
        return Response(iter(["data: 1\n\n"]), mimetype="text/event-stream")

    return app


def late(environ, start_response):
    """Sends its head with its first part, as a generator does."""
    start_response("200 OK", [("content-type", "text/plain")])
    yield b"late"


class WsgiNucleus(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        app = application()
        app.wsgi_app = TidegateWsgiNucleus(app.wsgi_app)
        cls.server = make_server("127.0.0.1", 0, app, threaded=True)
        cls.thread = threading.Thread(target=cls.server.serve_forever)
        cls.thread.start()
        cls.client = httpx.Client(base_url=f"http://127.0.0.1:{cls.server.port}", timeout=30)

    @classmethod
    def tearDownClass(cls):
        cls.client.close()
        cls.server.shutdown()
        cls.thread.join()
        cls.server.server_close()

    def test_the_application_learns_whether_to_include_optional_content(self):
        for value, expected in [(None, True), ("1", True), ("0", False)]:
            told = {OPTIONAL: value} if value else {}
            self.assertEqual(self.client.get("/", headers=told).json(), {"optional": expected})

    def test_an_answer_in_parts_says_whether_it_is_full(self):
        answer = self.client.get("/parts", headers={OPTIONAL: "0"})
        self.assertEqual((answer.text, answer.headers[OPTIONAL]), ("one two", "0"))
        self.assertNotIn(SERVICE, answer.headers)
        events = self.client.get("/events")
        self.assertNotIn(OPTIONAL, events.headers)

    def test_a_complete_answer_says_how_long_it_took(self):
        self.assertGreaterEqual(float(self.client.get("/slow").headers[SERVICE]), 49.0)

    def test_a_list_of_parts_is_complete(self):
        def app(environ, start_response):
            time.sleep(0.05)
            start_response("200 OK", [("content-type", "text/plain")])
            return [b"page"]

        heads = []
        body = TidegateWsgiNucleus(app)({}, lambda status, headers: heads.append(dict(headers)))
        self.assertEqual(list(body), [b"page"])
        self.assertGreaterEqual(float(heads[0][SERVICE]), 49.0)

    def test_the_protocol_is_kept(self):
        environ = {
            "REQUEST_METHOD": "GET", "PATH_INFO": "/", "SERVER_NAME": "a", "SERVER_PORT": "80",
            "SERVER_PROTOCOL": "HTTP/1.1", "QUERY_STRING": "", "SCRIPT_NAME": "",
            "wsgi.version": (1, 0), "wsgi.url_scheme": "http", "wsgi.multithread": True,
            "wsgi.multiprocess": False, "wsgi.run_once": False,
        }
        heads = []

        def start(status, headers, exc_info=None):
            heads.append(dict(headers))
            return lambda data: None

        class Input:
            read = readline = readlines = __iter__ = lambda self, *_: b""

        class Errors:
            flush = write = writelines = lambda self, *_: None

        environ["wsgi.input"], environ["wsgi.errors"] = Input(), Errors()
        parts = validator(TidegateWsgiNucleus(late))(environ, start)
        self.assertEqual(b"".join(parts), b"late")
        parts.close()
        self.assertEqual(heads[0][OPTIONAL], "1")


if __name__ == "__main__":
    unittest.main()
