"""Tidegate's nucleus for WSGI applications (Flask, Django, Bottle).

    app.wsgi_app = TidegateWsgiNucleus(app.wsgi_app)    # Flask
    application = TidegateWsgiNucleus(application)      # anything else

Whether to include optional content is `environ["tidegate.optional_content"]`. Answers that are
complete when they begin say in `tidegate-service-ms` how long they took. Others say in
`tidegate-optional` whether they are full; event streams say nothing.
"""

import time


class TidegateWsgiNucleus:
    def __init__(self, app):
        self.app = app

    def __call__(self, environ, start_response):
        answer = _Answer(environ, start_response)
        environ["tidegate.optional_content"] = answer.optional
        parts = self.app(environ, answer.start)
        if isinstance(parts, (list, tuple)) or getattr(parts, "__len__", lambda: 0)() == 1:
            answer.flush(complete=True)
            return parts
        return _Parts(parts, answer)


class _Answer:
    """Holds the head back until it is known whether the whole answer is there."""

    def __init__(self, environ, start_response):
        self.began = time.perf_counter()
        self.optional = environ.get("HTTP_TIDEGATE_OPTIONAL", "1").strip() != "0"
        self.start_response = start_response
        self.head = None
        self.write = None

    def start(self, status, headers, exc_info=None):
        if self.write is not None:
            # The head is gone: the server raises, as PEP 3333 wants it.
            return self.start_response(status, headers, exc_info)
        self.head = (status, headers, exc_info)
        return self._write

    def _write(self, data):
        self.flush(complete=False)
        return self.write(data)

    def is_all(self, part):
        """Whether the first part is the whole answer, as its length tells."""
        headers = self.head[1] if self.head else []
        lengths = [value for name, value in headers if name.lower() == "content-length"]
        return lengths == [str(len(part))]

    def flush(self, complete):
        if self.head is None:
            return
        status, headers, exc_info = self.head
        self.head = None
        if complete:
            service_ms = (time.perf_counter() - self.began) * 1e3
            headers = [*headers, ("tidegate-service-ms", f"{service_ms:.4f}")]
        elif not _is_event_stream(headers):
            headers = [*headers, ("tidegate-optional", "1" if self.optional else "0")]
        extra = () if exc_info is None else (exc_info,)
        self.write = self.start_response(status, headers, *extra)


class _Parts:
    """An answer in parts; an application may send its head with the first of them."""

    def __init__(self, parts, answer):
        self.parts = parts
        self.answer = answer

    def __iter__(self):
        for part in self.parts:
            self.answer.flush(complete=self.answer.is_all(part))
            yield part
        self.answer.flush(complete=True)

    def close(self):
        close = getattr(self.parts, "close", None)
        if close is not None:
            close()


def _is_event_stream(headers):
    return any(
        name.lower() == "content-type" and value.lower().startswith("text/event-stream")
        for name, value in headers
    )
