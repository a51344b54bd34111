"""The ui's server: host x origin x token, traversal, floods."""

import contextlib
import http.client
import itertools
import os
import re
import shutil
import socket
import threading
import time
import urllib.parse
from pathlib import Path

from harness import DOCTOR, Line, campaign_test, end_group, fresh, sample_run, start


class Server:
    def __init__(self, folder: Path, *words: str) -> None:
        self.log = folder.parent / "ui.log"
        self.process = start(
            [DOCTOR, "ui", str(folder), "--no-browser", *words]
            if self.has("--no-browser")
            else [DOCTOR, "ui", str(folder), *words],
            folder.parent,
            stdout=self.log.open("wb"),
            stderr=(folder.parent / "ui.err").open("wb"),
            env={"BROWSER": "true"},
        )
        until = time.monotonic() + 60
        found = None
        while found is None and time.monotonic() < until:
            time.sleep(0.1)
            found = re.search(
                r"http://([\w.:\[\]]+):(\d+)/\S*token=([\w-]+)",
                self.log.read_text() + (folder.parent / "ui.err").read_text(),
            )
        assert found, (self.log.read_text(), (folder.parent / "ui.err").read_text())
        self.host, self.port, self.token = found[1], int(found[2]), found[3]
        self.cookie = f"torchdoctor-{self.port}={self.token}"

    @staticmethod
    def has(option: str) -> bool:
        import subprocess

        return option in subprocess.run([DOCTOR, "ui", "--help"], capture_output=True, text=True).stdout

    def ask(self, path: str, method="GET", body=None, timeout=15.0, host=None, **headers) -> tuple[int, dict, bytes]:
        link = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        link.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        hosts = [f"127.0.0.1:{self.port}"] if host is None else host if isinstance(host, list) else [host]
        for each in hosts:
            link.putheader("Host", each)
        for name, value in headers.items():
            link.putheader(name.replace("_", "-"), value)
        if body is not None:
            link.putheader("Content-Length", str(len(body)))
        link.endheaders(body)
        answer = link.getresponse()
        found = answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read()
        link.close()
        return found

    def raw(self, data: bytes, timeout=10.0) -> bytes:
        with socket.create_connection(("127.0.0.1", self.port), timeout) as link:
            try:
                link.sendall(data)
                link.shutdown(socket.SHUT_WR)
            except OSError:
                pass
            got = b""
            try:
                while part := link.recv(65536):
                    got += part
            except OSError:
                pass
            return got

    def rss(self) -> int:
        return (
            int(
                next(
                    x
                    for x in Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
                    if x.startswith("VmRSS")
                ).split()[1]
            )
            >> 10
        )

    def close(self) -> None:
        end_group(self.process)


def runs_folder() -> Path:
    folder = fresh("web") / "runs"
    shutil.copytree(sample_run(), folder / sample_run().name)
    (folder.parent / "secret.txt").write_text("SECRETSECRET")
    (folder / "secret2.txt").write_text("SECRETSECRET")
    return folder


@campaign_test("web")
def web():
    folder = runs_folder()
    server = Server(folder)
    run = sample_run().name
    try:
        yield bound(server)
        yield hosts(server)
        yield tokens(server, run)
        yield origins(server, run)
        yield changing_by_get(server, run, folder)
        yield traversal(server, run)
        yield bad_queries(server, run)
        yield broken_requests(server)
        yield rapid(server, run)
        yield slow(server)
        yield leaks(server)
    finally:
        server.close()


def bound(server) -> Line:
    listening = []
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for row in Path(table).read_text().splitlines()[1:]:
            at, state = row.split()[1], row.split()[3]
            if state == "0A" and int(at.split(":")[1], 16) == server.port:
                listening.append(at.split(":")[0])
    failed = int(listening != ["0100007F"])
    return Line(
        "web: what it binds to",
        1,
        failed,
        [f"listening on {listening} (0100007F is 127.0.0.1), token of {len(server.token)} characters"],
    )


def hosts(server) -> Line:
    p = server.port
    good = {f"127.0.0.1:{p}", f"localhost:{p}", f"LOCALHOST:{p}", f"[::1]:{p}"}
    evil = [
        "localhost",
        "127.0.0.1",
        "localhost:1",
        f"localhost.:{p}",
        f"u@localhost:{p}",
        "evil.com",
        f"evil.com:{p}",
        f"127.0.0.1.evil.com:{p}",
        f"localhost.evil.com:{p}",
        f"localhost.:{p}",
        f"0.0.0.0:{p}",
        f"127.0.0.2:{p}",
        f"[::ffff:127.0.0.1]:{p}",
        f"2130706433:{p}",
        f"0x7f.1:{p}",
        f"evil.com@127.0.0.1:{p}",
        f"127.0.0.1:{p}@evil.com",
        f"127.0.0.1:{p}#evil",
        f"127.0.0.1 :{p}",
        "",
        " ",
        f"localhost:{p},evil.com",
        [f"127.0.0.1:{p}", "evil.com"],
        ["evil.com", f"127.0.0.1:{p}"],
        [f"127.0.0.1:{p}", f"127.0.0.1:{p}"],
        [],
        f"ex%61mple:{p}",
        f"127.0.0.1:{p}/x",
        f"169.254.169.254:{p}",
        socket.gethostname(),
        "localhost\t",
        f"locaℓhost:{p}".encode().decode("latin1"),
        f"127.1:{p}",
        "[::1",
        f"localhost:{p}:80",
    ]
    notes, failed, tried = [], 0, 0
    for host in [*good, *evil]:
        tried += 1
        try:
            status = server.ask("/", host=host, Cookie=server.cookie)[0]
        except Exception as error:
            status = type(error).__name__
        if (host in good if isinstance(host, str) else False) != (status == 200):
            failed += 1
            notes.append(f"Host {host!r}: {status}")
    return Line("web: Host header", tried, failed, notes)


def tokens(server, run) -> Line:
    paths = [
        "/",
        "/api/runs",
        f"/run/{run}",
        f"/api/run/{run}",
        f"/api/run/{run}/chart/loss",
        f"/compare?a={run}&b={run}",
        "/lab",
        "/lab/gallery",
        "/static/x/page.js",
        "/docs",
        "/openapi.json",
        "/favicon.ico",
        "/nothing",
        f"/run/{run}/note",
        f"/run/{run}/captures",
    ]
    bad = {
        "none": {},
        "wrong cookie": {"Cookie": f"torchdoctor-{server.port}=x"},
        "empty cookie": {"Cookie": f"torchdoctor-{server.port}="},
        "other port's cookie": {"Cookie": f"torchdoctor-1={server.token}"},
        "bearer": {"Authorization": f"Bearer {server.token}"},
        "case changed": {"Cookie": f"torchdoctor-{server.port}={server.token.swapcase()}"},
        "prefix": {"Cookie": f"torchdoctor-{server.port}={server.token[:-1]}"},
        "not ASCII": {"Cookie": f"torchdoctor-{server.port}=\xe9\xff"},
    }
    notes, failed, tried = [], 0, 0
    for path, (name, headers), method in itertools.product(
        paths, bad.items(), ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "TRACE", "PATCH", "PROPFIND")
    ):
        tried += 1
        status, _got, body = server.ask(path, method, **headers)
        if status not in (401, 403):
            failed += 1
            notes.append(f"{method} {path} with {name}: {status}")
    for query in (
        "token=",
        "token=x",
        f"token={server.token}x",
        f"Token={server.token}",
        f"token[]={server.token}",
        "token=%FF%FE",
        "token=\xe9",
        f"token=x&token={server.token}",
        "token=" + "a" * 60000,
    ):
        tried += 1
        try:
            status, _, body = server.ask("/?" + query)
        except Exception as error:
            status = type(error).__name__
        if status == 200 or status == 500:
            failed += int("token=x&token" not in query)
            notes.append(f"?{query[:60]}: {status}")
    tried += 1
    status, headers, body = server.ask(f"/?token={server.token}")
    cookie = headers.get("set-cookie", "")
    notes.append(
        f"with the token: {status}; cookie {cookie.replace(server.token, 'TOKEN')}; token in the body: {server.token.encode() in body}; {headers.get('referrer-policy')}; {headers.get('cache-control')}"
    )
    status, headers, body = server.ask(f"//evil.com/%2e%2e?token={server.token}&next=//evil.com")
    notes.append(f"open redirect? {body.decode(errors='replace').replace(server.token, 'TOKEN')[-160:]!r}")
    return Line("web: token", tried, failed, notes)


def origins(server, run) -> Line:
    p = server.port
    status, _, page = server.ask(f"/run/{run}", Cookie=server.cookie)
    form = re.search(rb'name="(\w+)"[^>]*value="([0-9a-f]{64})"', page)
    body = b""
    if form:
        body = urllib.parse.urlencode({form[1].decode(): form[2].decode(), "text": "hi"}).encode()
    kinds = {
        "form": body,
        "form without its token": b"text=hi",
        "form, wrong token": (re.sub(rb"=[0-9a-f]{64}", b"=" + b"0" * 64, body)),
        "form token of another length": re.sub(rb"=[0-9a-f]{64}", b"=1", body),
        "form token not ASCII": re.sub(rb"=[0-9a-f]{64}", b"=%C3%A9", body),
    }
    notes, failed, tried = [f"page {status}, form token found: {bool(form)}"], 0, 0
    for origin in (
        None,
        f"http://127.0.0.1:{p}",
        f"http://127.0.0.1:{p + 1}",
        f"http://localhost:{p}",
        f"https://127.0.0.1:{p}",
        "http://evil.com",
        "null",
        "",
        f"http://127.0.0.1:{p}.evil.com",
        "file://",
    ):
        for site, mode in (
            (None, None),
            ("same-origin", "navigate"),
            ("cross-site", "navigate"),
            ("cross-site", "no-cors"),
            ("same-site", "cors"),
            ("none", "navigate"),
        ):
            for kind, data in kinds.items():
                headers = {"Cookie": server.cookie, "Content-Type": "application/x-www-form-urlencoded"}
                if origin is not None:
                    headers["Origin"] = origin
                if site:
                    headers |= {"Sec_Fetch_Site": site, "Sec_Fetch_Mode": mode}
                tried += 1
                status = server.ask(f"/run/{run}/note", "POST", data, **headers)[0]
                fine = (
                    kind == "form"
                    and origin in (None, f"http://127.0.0.1:{p}")
                    and not (site in ("cross-site", "same-site") and mode != "navigate")
                )
                if status >= 500 or (status in (200, 303) and not fine):
                    failed += 1
                    notes.append(f"POST origin {origin!r} site {site} mode {mode}, {kind}: {status}")
                elif status not in (200, 303) and fine and site in (None, "same-origin"):
                    failed += 1
                    notes.append(f"own page refused: origin {origin!r} {site} {mode}: {status}")
    for data, kind in (
        (b"x" * 3_000_000, "3 MB"),
        (b"text=" + b"&a=b" * 200_000, "200,000 fields"),
        (b"\xff\xfe=%ff", "bytes"),
        (b'{"text":"x"}', "json"),
    ):
        tried += 1
        try:
            status = server.ask(
                f"/run/{run}/note",
                "POST",
                data,
                Cookie=server.cookie,
                Content_Type="application/json" if kind == "json" else "application/x-www-form-urlencoded",
            )[0]
        except Exception as error:
            status = type(error).__name__
        if status in (200, 303, 500):
            failed += 1
        notes.append(f"POST of {kind}: {status}")
    upgrade = {
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec_WebSocket_Key": "dGhlIHNhbXBsZSBub25jZQ==",
        "Sec_WebSocket_Version": "13",
        "Cookie": server.cookie,
        "Origin": "http://evil.com",
    }
    notes.append(f"websocket from evil.com: {server.ask('/', **upgrade)[0]}")
    return Line("web: Origin and forms", tried, failed, notes)


def changing_by_get(server, run, folder) -> Line:
    def state():
        return {str(p.relative_to(folder)): (p.stat().st_mtime_ns, p.stat().st_size) for p in folder.rglob("*")}

    before = state()
    paths = [
        f"/run/{run}/note?text=x",
        f"/run/{run}",
        "/",
        "/lab",
        f"/api/run/{run}?hold=0",
        f"/run/{run}/delete",
        f"/run/{run}/remove",
        f"/compare?a={run}&b={run}",
    ]
    statuses = [server.ask(p, Cookie=server.cookie)[0] for p in paths]
    after = state()
    new = {k for k in after if after[k] != before.get(k)} - {"."}
    return Line("web: GET changes nothing", len(paths), int(bool(new)), [f"{statuses}; changed {sorted(new)[:4]}"])


def traversal(server, run) -> Line:
    ways = [
        "..",
        "../secret.txt",
        "..%2fsecret.txt",
        "%2e%2e/secret.txt",
        "%2e%2e%2fsecret.txt",
        "%252e%252e%252fsecret.txt",
        "..%5csecret.txt",
        "....//secret.txt",
        "%c0%ae%c0%ae/secret.txt",
        "/etc/passwd",
        "%2fetc%2fpasswd",
        "//etc/passwd",
        "secret2.txt",
        "..%00",
        f"{run}%00.txt",
        f"{run}/../../secret.txt",
        ".",
        "",
        "%2e",
        "~",
        "~root",
        "CON",
        "a" * 5000,
        "%F0%9F%92%A9",
        "%ff",
        run + "%2f..",
        "..;/secret.txt",
        f"{run}%2frun.json",
        "proc/self/environ",
        "%2fproc%2fself%2fenviron",
        "{{7*7}}",
        "${7*7}",
        "%0d%0aSet-Cookie:x=1",
    ]
    stems = [
        "/run/{}",
        "/api/run/{}",
        "/api/run/{}/chart/loss",
        f"/api/run/{run}/chart/{{}}",
        "/static/{}",
        "/static/x/{}",
        f"/run/{run}/{{}}",
        "/compare?a={}&b={}",
        f"/run/{run}/capture/{{}}",
        f"/run/{run}/captures/{{}}/picture/0",
        "/lab/{}",
        "/lab/run/{}",
        "/{}",
    ]
    notes, failed, tried = [], 0, 0
    for stem, way in itertools.product(stems, ways):
        tried += 1
        try:
            status, headers, body = server.ask(stem.replace("{}", way), Cookie=server.cookie)
        except Exception as error:
            status, headers, body = type(error).__name__, {}, b""
        if (
            status == 500
            or b"SECRETSECRET" in body
            or b"root:x:0" in body
            or b"TD_WORK" in body
            or headers.get("set-cookie", "")[:1] == "x"
        ):
            failed += 1
            notes.append(f"{stem.replace('{}', way)[:90]}: {status} {body[:80]!r}")
    return Line("web: path traversal", tried, failed, notes)


def bad_queries(server, run) -> Line:
    odd = [
        "nan",
        "inf",
        "-inf",
        "1e999",
        "-1",
        "0",
        "99999999999999999999",
        "1" * 5000,
        "x",
        "",
        "%00",
        "\u0661",
        "0x10",
        "1_0",
        "[]",
        "a,b,c" * 1000,
    ]
    notes, failed, tried, slowest = [], 0, 0, (0.0, "")
    for value in map(urllib.parse.quote, odd):
        for path in (
            f"/api/run/{run}?first={value}&last=10",
            f"/api/run/{run}?first=0&last={value}",
            f"/api/run/{run}?charts={value}",
            f"/api/run/{run}?have={value}&since={value}",
            f"/api/run/{run}?layer={value}",
            f"/api/run/{run}/chart/loss?first=0&last={value}",
            f"/compare?a={value}&b={run}",
            f"/api/runs?since={value}",
            f"/run/{run}?x={value}",
        ):
            tried += 1
            begun = time.monotonic()
            try:
                status = server.ask(path, Cookie=server.cookie, timeout=30)[0]
            except Exception as error:
                status = type(error).__name__
            slowest = max(slowest, (time.monotonic() - begun, path))
            if status == 500 or isinstance(status, str):
                failed += 1
                notes.append(f"{path[:110]}: {status}")
    notes.append(f"slowest {slowest[0]:.1f} s: {slowest[1][:80]}")
    return Line("web: odd queries", tried, failed, notes)


def broken_requests(server) -> Line:
    host = f"Host: 127.0.0.1:{server.port}\r\nCookie: {server.cookie}\r\n".encode()
    requests = {
        "1 MB header": b"GET / HTTP/1.1\r\n" + host + b"X: " + b"a" * 1_000_000 + b"\r\n\r\n",
        "100,000 headers": b"GET / HTTP/1.1\r\n" + host + b"X: a\r\n" * 100_000 + b"\r\n",
        "2 MB address": b"GET /" + b"a" * 2_000_000 + b" HTTP/1.1\r\n" + host + b"\r\n",
        "nothing": b"",
        "zeros": bytes(10_000),
        "TLS hello": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),
        "HTTP/2 preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "HTTP/0.9": b"GET /\r\n",
        "smuggled lengths": b"POST / HTTP/1.1\r\n"
        + host
        + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /x HTTP/1.1\r\n\r\n",
        "negative length": b"POST / HTTP/1.1\r\n" + host + b"Content-Length: -1\r\n\r\n",
        "huge length": b"POST /run/x/note HTTP/1.1\r\n" + host + b"Content-Length: 99999999999999\r\n\r\nabc",
        "absolute address": b"GET http://evil.com/ HTTP/1.1\r\n" + host + b"\r\n",
        "CONNECT": b"CONNECT evil.com:80 HTTP/1.1\r\n" + host + b"\r\n",
        "two hosts": b"GET / HTTP/1.1\r\nHost: evil\r\n" + host + b"\r\n",
        "chunked bomb": b"POST /run/x/note HTTP/1.1\r\n"
        + host
        + b"Transfer-Encoding: chunked\r\n\r\n"
        + b"10000\r\n"
        + b"a" * 65536
        + b"\r\n",
        "cookies 500 KB": b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nCookie: " + b"a=b; " * 10_000 + b"\r\n\r\n",
        "cookie of 60 KB quotes": b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nCookie: a=" + b'"\\' * 25_000 + b"\r\n\r\n",
    }
    notes, failed = [], 0
    for name, data in requests.items():
        begun = time.monotonic()
        got = server.raw(data)
        seconds = time.monotonic() - begun
        first = got.split(b"\r\n")[0][:60]
        alive = server.ask("/api/runs", Cookie=server.cookie, timeout=30)[0] == 200
        if not alive or b" 500" in first or seconds > 8 or (b" 200" in first and name in ("two hosts",)):
            failed += 1
            notes.append(f"{name}: {first!r} {seconds:.1f} s, alive {alive}")
    notes.append(f"RSS {server.rss()} MB")
    return Line("web: broken requests", len(requests), failed, notes)


def rapid(server, run) -> Line:
    before, begun, statuses = server.rss(), time.monotonic(), []

    def go(n):
        for i in range(n):
            try:
                statuses.append(
                    server.ask(
                        ["/", "/api/runs", f"/api/run/{run}", f"/run/{run}"][i % 4], Cookie=server.cookie, timeout=60
                    )[0]
                )
            except Exception as error:
                statuses.append(type(error).__name__)

    threads = [threading.Thread(target=go, args=(125,)) for _ in range(8)]
    [t.start() for t in threads], [t.join() for t in threads]
    bad = [s for s in statuses if s != 200]
    return Line(
        "web: 1,000 rapid requests",
        len(statuses),
        len(bad),
        [
            f"{time.monotonic() - begun:.1f} s; RSS {before} -> {server.rss()} MB; others than 200: {sorted(set(map(str, bad)))}"
        ],
    )


def slow(server) -> Line:
    """200 connections that send a byte now and then; does somebody else still get an answer, and is any ever closed?"""
    links = []
    for i in range(200):
        link = socket.create_connection(("127.0.0.1", server.port), 5)
        link.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " if i % 2 else b"")
        links.append(link)
    begun = time.monotonic()
    times = []
    for _ in range(8):
        for link in links[:100]:
            with contextlib.suppress(OSError):
                link.sendall(b"a")
        now = time.monotonic()
        server.ask("/", Cookie=server.cookie, timeout=30)[0]
        times.append(time.monotonic() - now)
        time.sleep(1)
    descriptors = len(os.listdir(f"/proc/{server.process.pid}/fd"))
    closed = 0
    for link in links:
        link.setblocking(False)
        try:
            closed += link.recv(10) == b""
        except BlockingIOError:
            pass
        except OSError:
            closed += 1
    [link.close() for link in links]
    return Line(
        "web: 200 slow connections",
        8,
        int(max(times) > 2),
        [
            f"slowest answer to another {max(times):.2f} s; after {time.monotonic() - begun:.0f} s {closed} of 200 closed, {descriptors} descriptors held"
        ],
    )


def leaks(server) -> Line:
    texts = server.log.read_text(), (server.log.parent / "ui.err").read_text()
    counted = [t.count(server.token) for t in texts]
    environment = (
        Path(f"/proc/{server.process.pid}/environ").read_bytes()
        + Path(f"/proc/{server.process.pid}/cmdline").read_bytes()
    )
    page = server.ask("/", Cookie=server.cookie)[2]
    failed = (
        int(sum(counted) > 1)
        + int(server.token.encode() in environment)
        + int(server.token.encode() in page)
        + int("Traceback" in texts[0] + texts[1])
    )
    trace = (
        (texts[0] + texts[1])[(texts[0] + texts[1]).find("Traceback") :][:600]
        if "Traceback" in texts[0] + texts[1]
        else ""
    )
    return Line(
        "web: token in logs, command line, pages",
        4,
        failed,
        [
            f"in stdout {counted[0]}, stderr {counted[1]}; stderr of the server: {texts[1][-200:]!r}",
            trace.replace("\n", " | "),
        ],
    )
