"""A gRPC server and client without generated code: messages are plain bytes."""

import sys
from concurrent.futures import ThreadPoolExecutor

import grpc

COUNT = 50


class Service(grpc.GenericRpcHandler):
    def service(self, call):
        return {
            "/tide.Tide/Echo": grpc.unary_unary_rpc_method_handler(lambda message, _: message),
            "/tide.Tide/Count": grpc.unary_stream_rpc_method_handler(
                lambda _, __: (str(number).encode() for number in range(COUNT))),
            "/tide.Tide/Join": grpc.stream_unary_rpc_method_handler(lambda parts, _: b"".join(parts)),
            "/tide.Tide/Talk": grpc.stream_stream_rpc_method_handler(
                lambda parts, _: (part.upper() for part in parts)),
            "/tide.Tide/Fail": grpc.unary_unary_rpc_method_handler(fail),
        }.get(call.method)


def fail(_, context):
    context.abort(grpc.StatusCode.FAILED_PRECONDITION, "the tide is out")


def serve(port):
    server = grpc.server(ThreadPoolExecutor(4), handlers=[Service()])
    server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    server.wait_for_termination()


def ask(port):
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        large = bytes(range(256)) * 8192
        assert channel.unary_unary("/tide.Tide/Echo")(large, timeout=20) == large
        counted = list(channel.unary_stream("/tide.Tide/Count")(b"", timeout=20))
        assert counted == [str(number).encode() for number in range(COUNT)], counted
        parts = [b"a", b"b" * 100_000, b"c"]
        assert channel.stream_unary("/tide.Tide/Join")(iter(parts), timeout=20) == b"".join(parts)
        assert list(channel.stream_stream("/tide.Tide/Talk")(iter([b"x", b"y"]), timeout=20)) == [b"X", b"Y"]
        try:
            channel.unary_unary("/tide.Tide/Fail")(b"", timeout=20)
            raise AssertionError("no error came through")
        except grpc.RpcError as error:
            assert error.code() is grpc.StatusCode.FAILED_PRECONDITION, error.code()
            assert error.details() == "the tide is out", error.details()
    print("unary of 2 MiB, streams both ways, status in trailers")


{"serve": serve, "ask": ask}[sys.argv[1]](int(sys.argv[2]))
