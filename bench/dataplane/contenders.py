"""The proxies that are compared: how each is configured, started and measured."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from support import free_port

SMALL, KIB, LARGE = 100, 1024, 64 * 1024
TICKS = os.sysconf("SC_CLK_TCK")

PACKAGES = {"nginx": "nginx-light", "haproxy": "haproxy", "wrk": "wrk", "h2load": "nghttp2-client", "openssl": "openssl"}


def find(tool):
    """A tool, installed if that is possible."""
    where = os.environ["PATH"] + ":/usr/sbin:/sbin"
    path = shutil.which(tool, path=where)
    if not path:
        subprocess.run(["apt-get", "install", "-y", "-q", "--no-install-recommends", PACKAGES[tool]],
                       stdout=subprocess.DEVNULL, check=False)
        path = shutil.which(tool, path=where)
    return path or sys.exit(f"{tool} is missing: install the package {PACKAGES[tool]}")


# --- processes ------------------------------------------------------------------------------------

def tree(pid):
    """A process and its descendants."""
    found = [pid]
    for task in Path(f"/proc/{pid}/task").glob("*"):
        try:
            children = (task / "children").read_text().split()
        except OSError:
            continue
        for child in children:
            found += tree(int(child))
    return found


class Server:
    """A server process on its own port."""

    def __init__(self, name, command, port):
        self.name, self.port = name, port
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        deadline = time.monotonic() + 20
        while True:
            if self.process.poll() is not None:
                sys.exit(f"{name} ended: {self.process.stderr.read().decode()}")
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                return
            except OSError:
                if time.monotonic() > deadline:
                    self.stop()
                    sys.exit(f"{name} does not listen on port {port}")
                time.sleep(0.05)

    def cpu_seconds(self):
        """User and system time of its processes so far."""
        total = 0
        for member in tree(self.process.pid):
            # The name in parentheses may contain spaces; times are fields 14 and 15.
            fields = Path(f"/proc/{member}/stat").read_text().rsplit(")", 1)[1].split()
            total += int(fields[11]) + int(fields[12])
        return total / TICKS

    def memory_kib(self):
        """Memory of its processes, what they share counted once."""
        total = 0
        for member in tree(self.process.pid):
            for line in Path(f"/proc/{member}/smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    total += int(line.split()[1])
        return total

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


# --- configurations -------------------------------------------------------------------------------

REFUSAL = "503 Service Unavailable\\nThe service is busy right now and cannot take your request. Please wait a moment, then try again.\\n"

NGINX = """
daemon off; pid {dir}/{name}.pid; error_log stderr error; worker_processes {threads};
events {{ worker_connections 8192; }}
http {{
  access_log off; keepalive_requests 100000000; keepalive_timeout 3600s; server_tokens off;
  client_body_temp_path {dir}/b; proxy_temp_path {dir}/p; fastcgi_temp_path {dir}/f;
  uwsgi_temp_path {dir}/u; scgi_temp_path {dir}/s;
  {body}
}}
"""

ORIGIN = """
  server {{ listen 127.0.0.1:{port} backlog=4096; root {dir}/www; default_type text/plain; sendfile on; tcp_nopush on; }}
"""

NGINX_PROXY = """
  upstream origin {{ server 127.0.0.1:{origin}; keepalive 1024; keepalive_requests 100000000; }}
  server {{
    listen 127.0.0.1:{port} backlog=4096{options};
    {tls}
    location / {{
      proxy_pass http://origin; proxy_http_version 1.1; proxy_set_header Connection "";
      proxy_set_header Host $host; proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
      proxy_set_header X-Forwarded-Proto $scheme;
    }}
    location /refused {{
      add_header Retry-After 1 always; add_header Cache-Control no-store always; default_type text/plain;
      return 503 "{refusal}";
    }}
  }}
"""

HAPROXY = """
global
  maxconn 8192
  nbthread {threads}
defaults
  mode http
  timeout connect 5s
  timeout client 60s
  timeout server 60s
  timeout http-keep-alive 3600s
  http-reuse always
  option forwardfor
frontend in
  bind 127.0.0.1:{port} backlog 4096 {options}
  http-request return status 503 content-type text/plain string "{refusal}" hdr retry-after 1 hdr cache-control no-store if {{ path /refused }}
  http-request set-header X-Forwarded-Proto http
  default_backend origin
backend origin
  server origin 127.0.0.1:{origin} maxconn 8192 pool-max-conn 1024
"""

ENVOY = """
static_resources:
  listeners:
  - address: {{ socket_address: {{ address: 127.0.0.1, port_value: {port} }} }}
    tcp_backlog_size: 4096
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: bench
          use_remote_address: true
          generate_request_id: false
          http_filters:
          - name: envoy.filters.http.router
            typed_config: {{ "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router }}
          route_config:
            virtual_hosts:
            - name: all
              domains: ["*"]
              routes:
              - match: {{ path: /refused }}
                direct_response: {{ status: 503, body: {{ inline_string: "{refusal}" }} }}
                response_headers_to_add:
                - header: {{ key: retry-after, value: "1" }}
                - header: {{ key: cache-control, value: no-store }}
              - match: {{ prefix: / }}
                route: {{ cluster: origin }}
      {tls}
  clusters:
  - name: origin
    type: STATIC
    circuit_breakers: {{ thresholds: [{{ max_connections: 8192, max_pending_requests: 8192, max_requests: 8192 }}] }}
    load_assignment:
      cluster_name: origin
      endpoints:
      - lb_endpoints:
        - endpoint: {{ address: {{ socket_address: {{ address: 127.0.0.1, port_value: {origin} }} }} }}
"""

ENVOY_TLS = """transport_socket:
        name: envoy.transport_sockets.tls
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext
          common_tls_context:
            tls_certificates: [{{ certificate_chain: {{ filename: {dir}/cert.pem }}, private_key: {{ filename: {dir}/key.pem }} }}]
"""

TIDEGATE = """
threads = {threads}
admin = "127.0.0.1:0"
upstream.replicas = "http://127.0.0.1:{origin}"
limits.connections = 20000
upstream.idle_max = 1024
{protect}
[[listen]]
addr = "127.0.0.1:{port}"
{tls}
"""

MODES = {"tidegate": "", "engine off": "protect.mode = 'off'",
         "refuse": "protect.mode = 'static'\nprotect.static.share = '0%'"}


class Contenders:
    """Starts the origin and the proxies for one scenario after the other."""

    def __init__(self, directory, tools, binary, envoy, threads, beside=None, without=()):
        self.dir, self.tools, self.binary, self.envoy, self.threads = directory, tools, binary, envoy, threads
        self.beside, self.without = beside, without
        self.servers = []
        www = directory / "www"
        www.mkdir()
        directory.chmod(0o755)
        for size in (SMALL, KIB, LARGE):
            (www / str(size)).write_bytes(b"x" * size)
        subprocess.run([tools["openssl"], "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                        "-keyout", str(directory / "key.pem"), "-out", str(directory / "cert.pem"), "-days", "7",
                        "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"],
                       check=True, capture_output=True)
        both = (directory / "cert.pem").read_text() + (directory / "key.pem").read_text()
        (directory / "both.pem").write_text(both)
        for name in ("key.pem", "both.pem"):
            (directory / name).chmod(0o644)

    def start(self, http2=False, tls=False, refuse=False):
        """Every proxy by its name, in front of a new origin."""
        origin = self._nginx("origin", lambda port: ORIGIN.format(port=port, dir=self.dir), 1)
        how = {"http2": http2, "tls": tls, "origin": origin.port}
        started = {"nginx": self._nginx_proxy(**how)}
        if "haproxy" not in self.without:
            started["haproxy"] = self._haproxy(**how)
        if self.envoy:
            started["envoy"] = self._envoy(**how)
        mode = "refuse" if refuse else "tidegate"
        started["tidegate"] = self._tidegate("tidegate", self.binary, mode, **how)
        if self.beside:
            started["beside"] = self._tidegate("beside", self.beside, mode, **how)
        if not refuse and "engine off" not in self.without:
            started["engine off"] = self._tidegate("engine off", self.binary, "engine off", **how)
        return started

    def stop(self):
        for server in self.servers:
            server.stop()
        self.servers = []

    def _serve(self, name, command, port):
        server = Server(name, [str(part) for part in command], port)
        self.servers.append(server)
        return server

    def _file(self, name, text):
        path = self.dir / name.replace(" ", "-")
        path.write_text(text)
        return path

    def _nginx(self, name, body, threads):
        port = free_port()
        text = NGINX.format(dir=self.dir, name=name, threads=threads, body=body(port))
        return self._serve(name, [self.tools["nginx"], "-e", "stderr", "-p", self.dir, "-c", self._file(f"{name}.conf", text)], port)

    def _nginx_proxy(self, http2, tls, origin):
        options = (" ssl" if tls else "") + (" http2" if http2 else "")
        secret = f"ssl_certificate {self.dir}/cert.pem; ssl_certificate_key {self.dir}/key.pem;" if tls else ""
        return self._nginx("nginx", lambda port: NGINX_PROXY.format(
            port=port, origin=origin, options=options, tls=secret, refusal=REFUSAL), self.threads)

    def _haproxy(self, http2, tls, origin):
        port = free_port()
        options = "proto h2" if http2 else f"ssl crt {self.dir}/both.pem" if tls else ""
        text = HAPROXY.format(port=port, threads=self.threads, origin=origin, options=options, refusal=REFUSAL)
        return self._serve("haproxy", [self.tools["haproxy"], "-db", "-f", self._file("haproxy.cfg", text)], port)

    def _envoy(self, http2, tls, origin):
        del http2  # It finds out by itself.
        port = free_port()
        secret = ENVOY_TLS.format(dir=self.dir) if tls else ""
        text = ENVOY.format(port=port, origin=origin, tls=secret, refusal=REFUSAL)
        command = [self.envoy, "--disable-hot-restart", "--log-level", "error", "--concurrency", self.threads, "-c"]
        return self._serve("envoy", command + [self._file("envoy.yaml", text)], port)

    def _tidegate(self, name, binary, mode, http2, tls, origin):
        del http2
        port = free_port()
        secret = f'tls = {{ cert = "{self.dir}/cert.pem", key = "{self.dir}/key.pem" }}' if tls else ""
        text = TIDEGATE.format(port=port, threads=self.threads, origin=origin, tls=secret, protect=MODES[mode])
        return self._serve(name, [binary, "run", "-c", self._file(f"{name}.toml", text)], port)
