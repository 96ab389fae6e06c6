"""A real apiserver, controller-manager and etcd in a network of their own, and nodes that are made up.

There is no kubelet: `Kubelet` here starts each pod's program as a process of this machine, at the pod's own address,
and reports what a kubelet would: phase, addresses, conditions with readiness gates, deletion after the grace period.
Everything else (Deployments, ReplicaSets, EndpointSlices, Leases, custom resources, RBAC) is Kubernetes itself.
"""

import base64
import json
import os
import signal
import socket
import ssl
import subprocess
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

PODS = "10.199"  # on the loopback device of our own network namespace; endpoints must not be 127.0.0.0/8
API = "https://127.0.0.1:6443"
ADMIN = "admin-token"
NAMESPACE = "default"
PATIENCE = 120  # seconds, on a machine that does other things too


def until(what, holds, patience=PATIENCE, pause=0.1):
    begun = time.monotonic()
    while True:
        found = holds()
        if found:
            return found
        if time.monotonic() - begun > patience:
            raise SystemExit(f"not within {patience} s: {what}")
        time.sleep(pause)


class Refused(Exception):
    def __init__(self, code, text):
        super().__init__(f"{code}: {text}")
        self.code, self.text = code, text


CONTEXT = ssl._create_unverified_context()


def call(method, path, body=None, kind="application/json", token=ADMIN, timeout=20):
    data = None if body is None else json.dumps(body).encode()
    headers = {"Authorization": f"Bearer {token}", "Content-Type": kind, "Accept": "application/json"}
    request = urllib.request.Request(API + path, data=data, method=method, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=timeout, context=CONTEXT) as answer:
            return json.loads(answer.read() or "{}")
    except urllib.error.HTTPError as error:
        raise Refused(error.code, error.read().decode(errors="replace")) from None


MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"


class Cluster:
    def __init__(self, binaries, folder):
        self.binaries, self.folder, self.processes = Path(binaries), Path(folder), {}
        (self.folder / "tokens.csv").write_text(f"{ADMIN},admin,admin,system:masters\n")
        key = self.folder / "key.pem"
        subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True, capture_output=True)
        self.kubeconfig = self.write_kubeconfig("admin.conf", ADMIN)

    def write_kubeconfig(self, name, token):
        path = self.folder / name
        path.write_text(json.dumps({
            "apiVersion": "v1", "kind": "Config", "current-context": "it",
            "clusters": [{"name": "it", "cluster": {"server": API, "insecure-skip-tls-verify": True}}],
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it", "namespace": NAMESPACE}}],
            "users": [{"name": "it", "user": {"token": token}}]}))
        return path

    def spawn(self, name, command):
        log = open(self.folder / f"{name}.log", "ab")
        self.processes[name] = subprocess.Popen([str(it) for it in command], stdout=log, stderr=log)

    def start(self):
        self.spawn("etcd", ["etcd", "--data-dir", self.folder / "etcd", "--listen-client-urls", "http://127.0.0.1:2379",
                            "--advertise-client-urls", "http://127.0.0.1:2379", "--unsafe-no-fsync",
                            "--listen-peer-urls", "http://127.0.0.1:2380"])
        self.start_apiserver()
        self.spawn("controller-manager", [
            self.binaries / "kube-controller-manager", "--kubeconfig", self.kubeconfig, "--leader-elect=false",
            "--controllers=deployment,replicaset,statefulset,endpoint,endpointslice,serviceaccount,namespace"])
        until("the default service account", lambda: self.exists(f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/default"))

    def start_apiserver(self):
        key = self.folder / "key.pem"
        self.spawn("apiserver", [
            self.binaries / "kube-apiserver", "--etcd-servers=http://127.0.0.1:2379", "--bind-address=127.0.0.1",
            "--secure-port=6443", f"--advertise-address={PODS}.0.1", "--cert-dir", self.folder / "certs",
            "--service-cluster-ip-range=10.96.0.0/16", "--authorization-mode=RBAC",
            "--token-auth-file", self.folder / "tokens.csv", "--service-account-issuer=https://kubernetes.default.svc",
            "--service-account-signing-key-file", key, "--service-account-key-file", key,
            "--api-audiences=https://kubernetes.default.svc", "--disable-admission-plugins=ServiceAccount"])
        until("the API server", self.answers)

    def stop_apiserver(self):
        process = self.processes.pop("apiserver")
        process.send_signal(signal.SIGKILL)
        process.wait()

    def answers(self):
        if self.processes["apiserver"].poll() is not None:
            raise SystemExit(f"the API server ended: {(self.folder / 'apiserver.log').read_text()[-1000:]}")
        try:
            return call("GET", "/readyz?exclude=x", timeout=3) is not None
        except Refused:
            return False
        except json.JSONDecodeError:
            return True  # "ok" is no JSON
        except OSError:
            return False

    def exists(self, path):
        try:
            return call("GET", path)
        except (Refused, OSError):
            return None

    def token_of(self, account):
        """A token of a ServiceAccount, with the rights that its Role gives and no others."""
        path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{account}/token"
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
                   "spec": {"audiences": ["https://kubernetes.default.svc"], "expirationSeconds": 7200}}
        return call("POST", path, request)["status"]["token"]

    def kubectl(self, *args, check=True, stdin=None):
        done = subprocess.run(["kubectl", "--kubeconfig", str(self.kubeconfig), *args], input=stdin, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60)
        if check and done.returncode:
            raise SystemExit(f"kubectl {' '.join(args)}: {done.stdout}")
        return done.stdout

    def stop(self):
        for process in reversed(list(self.processes.values())):
            process.terminate()
        for process in self.processes.values():
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()


class Kubelet(threading.Thread):
    """Runs pods. `command(ip)` is the program of each."""

    def __init__(self, folder, command):
        super().__init__(daemon=True)
        self.folder, self.command, self.pods, self.number, self.ended = Path(folder), command, {}, 0, False

    def run(self):
        # EndpointSlices name the node of a pod.
        call("POST", "/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1"}})
        while not self.ended:
            try:
                self.look()
            except (OSError, Refused):
                pass  # the API server is away: what runs goes on
            time.sleep(0.1)
        for pod in self.pods.values():
            pod["process"].kill()

    def look(self):
        pods = call("GET", f"/api/v1/namespaces/{NAMESPACE}/pods")["items"]
        there = {pod["metadata"]["uid"] for pod in pods}
        for uid in [uid for uid in self.pods if uid not in there]:
            self.pods.pop(uid)["process"].kill()
        for pod in pods:
            self.keep(pod)

    def keep(self, pod):
        uid, path = pod["metadata"]["uid"], f"/api/v1/namespaces/{NAMESPACE}/pods/{pod['metadata']['name']}"
        if pod["metadata"].get("deletionTimestamp"):
            return self.delete(uid, path, pod)
        if not pod["spec"].get("nodeName"):
            return call("POST", path + "/binding", {"apiVersion": "v1", "kind": "Binding", "metadata": {
                "name": pod["metadata"]["name"]}, "target": {"apiVersion": "v1", "kind": "Node", "name": "node-1"}})
        if uid not in self.pods:
            self.number += 1
            ip = f"{PODS}.{1 + self.number // 250}.{1 + self.number % 250}"
            log = open(self.folder / f"pod-{ip}.log", "ab")
            process = subprocess.Popen(self.command(ip), stdout=log, stderr=log, stdin=subprocess.DEVNULL)
            self.pods[uid] = {"process": process, "ip": ip, "name": pod["metadata"]["name"], "deleted": None}
        self.report(self.pods[uid], path, pod)

    def delete(self, uid, path, pod):
        """preStop first, as `sleep N`; then the end of the program, then of the pod."""
        known = self.pods.get(uid)
        if known:
            known["deleted"] = known["deleted"] or time.monotonic()
            hook = pod["spec"]["containers"][0].get("lifecycle", {}).get("preStop", {}).get("exec", {}).get("command", [])
            if time.monotonic() - known["deleted"] < (float(hook[1]) if hook else 0):
                return
            known["process"].terminate()
            try:
                known["process"].wait(0.5)
            except subprocess.TimeoutExpired:
                return
        call("DELETE", path, {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0})

    def report(self, known, path, pod):
        try:
            socket.create_connection((known["ip"], 8080), timeout=0.2).close()
            started = True
        except OSError:
            started = False
        conditions = {it["type"]: it["status"] for it in pod.get("status", {}).get("conditions", [])}
        gates = [it["conditionType"] for it in pod["spec"].get("readinessGates") or []]
        ready = started and all(conditions.get(gate) == "True" for gate in gates)
        wanted = {"Initialized": "True", "PodScheduled": "True", "ContainersReady": str(started), "Ready": str(ready)}
        if all(conditions.get(kind) == status for kind, status in wanted.items()) and pod["status"].get("podIP"):
            return
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        call("PATCH", path + "/status", {"status": {
            "phase": "Running" if started else "Pending", "podIP": known["ip"], "podIPs": [{"ip": known["ip"]}],
            "conditions": [{"type": kind, "status": status, "lastTransitionTime": now} for kind, status in wanted.items()],
        }}, kind=STRATEGIC)


def grpc(address, method, message):
    """A unary call of gRPC by curl; returns the answer's message."""
    frame = b"\0" + len(message).to_bytes(4, "big") + message
    done = subprocess.run(
        ["curl", "-sS", "--http2-prior-knowledge", "-H", "content-type: application/grpc", "-H", "te: trailers",
         "--data-binary", "@-", f"http://{address}/{method}"], input=frame, capture_output=True, timeout=20)
    return done.stdout[5:]


def decode(message):
    """The fields of a message of protobuf, as far as KEDA's need it."""
    fields, at = {}, 0
    while at < len(message):
        tag, kind = message[at] >> 3, message[at] & 7
        at += 1
        if kind == 0:
            value, shift = 0, 0
            while True:
                byte = message[at]
                at += 1
                value |= (byte & 127) << shift
                shift += 7
                if byte < 128:
                    break
        elif kind == 1:
            import struct
            value = struct.unpack("<d", message[at:at + 8])[0]
            at += 8
        else:
            length = message[at]
            value = message[at + 1:at + 1 + length]
            at += 1 + length
        fields[tag] = value
    return fields


def enter_network():
    """Begins this program anew in a network of its own, unless it is there."""
    if os.environ.get("TIDEGATE_OWN_NETWORK"):
        for command in (["ip", "link", "set", "lo", "up"], ["ip", "addr", "add", f"{PODS}.0.0/16", "dev", "lo"]):
            subprocess.run(command, check=True)
        return
    import sys
    os.environ["TIDEGATE_OWN_NETWORK"] = "1"
    flags = "-n" if os.geteuid() == 0 else "-rn"
    os.execvp("unshare", ["unshare", flags, sys.executable, *sys.argv])
