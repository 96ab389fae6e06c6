"""Tidegate's nucleus for ASGI applications (Starlette, FastAPI, Quart, Django).

    app.add_middleware(TidegateNucleus)    # Starlette and FastAPI
    app = TidegateNucleus(app)             # anything else

Whether to include optional content is `request.state.optional_content` in Starlette and FastAPI,
`scope["state"]["optional_content"]` elsewhere. Answers say in `tidegate-service-ms` how long they
took. Those sent in several parts cannot, because their head is gone by then; they say in
`tidegate-optional` whether they are full, by which the proxy learns that it may ask. Event streams
say nothing.
"""

import time


class TidegateNucleus:
    def __init__(self, app):
        self.app = app

    async def __call__(self, scope, receive, send):
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began = time.perf_counter()
        optional = dict(scope["headers"]).get(b"tidegate-optional", b"1").strip() != b"0"
        scope = {**scope, "state": {**scope.get("state", {}), "optional_content": optional}}
        head = None

        async def send_measured(message):
            nonlocal head
            if message["type"] == "http.response.start" and not is_event_stream(message):
                head = message  # held back until it is known whether the whole answer is there
                return
            if head is not None:
                if message["type"] == "http.response.body" and not message.get("more_body"):
                    service_ms = (time.perf_counter() - began) * 1e3
                    said = (b"tidegate-service-ms", b"%.4f" % service_ms)
                else:
                    said = (b"tidegate-optional", b"1" if optional else b"0")
                await send({**head, "headers": [*head.get("headers", []), said]})
                head = None
            await send(message)

        await self.app(scope, receive, send_measured)


def is_event_stream(head):
    """The head of an event stream is not held back: its first event may be far away."""
    headers = ((name.lower(), value.lower()) for name, value in head.get("headers", []))
    return any(n == b"content-type" and v.startswith(b"text/event-stream") for n, v in headers)
