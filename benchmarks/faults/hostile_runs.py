"""A run directory from a stranger: payloads in every text, opened as report and in the ui by a browser; what does replay execute?"""

import contextlib
import hashlib
import json
import shutil
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from damaged_runs import nan_run
from harness import DOCTOR, PYTHON, SCRIPTS, WORK, Line, call, campaign_test, fresh, runs_in
from web_server import Server

PAYLOADS = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "</script><script>alert(1)</script>",
    "\"'><svg onload=alert(1)>",
    "javascript:alert(1)",
    "</style><img src=x onerror=alert(1)>",
    "<!--<script>",
    "]]><script>alert(1)</script>",
    "{{7*7}}{% raw %}",
    "${alert(1)}",
    "`${alert(1)}`",
    "\u2028alert(1)\u2029",
    "&lt;img src=x onerror=alert(1)&gt;",
    "<img src=http://127.0.0.1:PORT/leak>",
    "<link rel=stylesheet href=http://127.0.0.1:PORT/leak>",
    "[a](javascript:alert(1))",
    "<b onmouseover=alert(1)>x</b>",
    "\x1b]0;owned\x07\x1b[2J",
    "\u202egpj.exe",
    "</textarea><script>alert(1)</script>",
    "</title><script>alert(1)</script>",
    "'-alert(1)-'",
    '\\"-alert(1)//',
    "<a href='javascript:alert(1)'>x</a>",
    "=cmd|' /C calc'!A0",
    "<iframe srcdoc='<script>parent.alert(1)</script>'>",
    "<math><mtext></form><form><mglyph><style></math><img src onerror=alert(1)>",
    "<meta http-equiv=refresh content='0;url=http://127.0.0.1:PORT/leak'>",
    "<base href=http://127.0.0.1:PORT/>",
    "<form action=http://127.0.0.1:PORT/leak><button autofocus>",
]


def poisoned(origin: Path, target: Path, port: int) -> int:
    """A copy in which every text that a reader may show is a payload, one after the other. How many were placed."""
    import pyarrow as pa

    shutil.copytree(origin, target)
    placed = [0]

    def payload(old: str = "") -> str:
        placed[0] += 1
        return PAYLOADS[placed[0] % len(PAYLOADS)].replace("PORT", str(port))

    def spoil(value, key=""):
        if isinstance(value, str):
            return (
                value
                if key in ("status", "torchdoctor", "kind", "event", "phase", "type", "dtype", "role")
                else payload(value)
            )
        if isinstance(value, list):
            return [spoil(v, key) for v in value]
        if isinstance(value, dict):
            return {k: spoil(v, k) for k, v in value.items()}
        return value

    info = json.loads((target / "run.json").read_text())
    info["git"] = {"commit": "a" * 40, "branch": "b", "dirty": True, "diff": "x\ny", "diff_cut": False}
    info["notes"] = ["a"]
    (target / "run.json").write_text(json.dumps(spoil(info)))
    for path in target.glob("*.arrow"):
        reader = pa.ipc.open_stream(path.read_bytes())
        schema, batches = reader.schema, list(reader)
        table = path.name.split("-")[0]
        meta = json.loads(schema.metadata[b"torchdoctor"])
        if "columns" in meta:
            meta["columns"] = [f"{payload()}{i}" for i in range(len(meta["columns"]))]
        changed = schema.with_metadata({b"torchdoctor": json.dumps(meta).encode()})
        made = []
        for batch in batches:
            columns = []
            for field, column in zip(schema, batch.columns, strict=False):
                if table == "facts" and field.name == "data":
                    column = pa.array([json.dumps(spoil(json.loads(t))) for t in column.to_pylist()])
                elif (table == "facts" and field.name == "subject") or (table == "series" and field.name == "key"):
                    column = pa.array([payload() if t else t for t in column.to_pylist()])
                columns.append(column)
            made.append(pa.record_batch(columns, schema=changed))
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, changed) as writer:
            for batch in made:
                writer.write_batch(batch)
    for document in target.glob("captures/*/capture.json"):
        document.chmod(0o600)
        document.write_text(json.dumps(spoil(json.loads(document.read_text()))))
    lines = [json.dumps({"time": 1.7e9, "text": payload(), "author": payload()}) for _ in PAYLOADS]
    (target / "journal.jsonl").write_text("\n".join(lines) + "\n")
    return placed[0]


@campaign_test("xss")
def xss():
    from playwright.sync_api import sync_playwright

    nan_run()
    origins = [runs_in(WORK / "nan-sample"), runs_in(WORK / "sample")]
    origins = [o[0] for o in origins if o]
    asked: list[str] = []

    class Trap(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            self.send_response(204)
            self.end_headers()

        def log_message(self, *words):
            pass

    trap = ThreadingHTTPServer(("127.0.0.1", 0), Trap)
    threading.Thread(target=trap.serve_forever, daemon=True).start()
    port = trap.server_address[1]
    folder = fresh("xss") / "runs"
    folder.mkdir()
    placed = 0
    for i, origin in enumerate(origins):
        placed += poisoned(origin, folder / f"<img src=x onerror=alert({i})>", port)
    shutil.copytree(origins[0], folder / '"><script>alert(9)<%2fscript>')
    notes, failed, tried = [f"{placed} texts replaced"], 0, 0
    pages = []
    runs = sorted(folder.iterdir())
    for run in runs:
        out = folder.parent / f"r{len(pages)}.html"
        end = call([DOCTOR, "report", str(run), "--with-captures", "-o", str(out)], folder.parent, 90)
        if out.exists():
            pages.append((f"report of {run.name}", out.as_uri(), ""))
        if end.traceback or not out.exists():
            failed += 1
            notes.append(f"report: rc {end.rc} {end.said[-250:]!r}")
        for command in ("diagnose", "runs", "top"):
            words = {
                "diagnose": ["diagnose", str(run)],
                "runs": ["runs", "list", str(folder)],
                "top": ["top", str(run), "--once"],
            }[command]
            end = call([DOCTOR, *words], folder.parent, 60)
            tried += 1
            controls = [c for c in end.said if (ord(c) < 32 and c not in "\n\t\r") or c in "\u202e\u2028\u2029\x9b"]
            if end.traceback or controls:
                failed += 1
                notes.append(
                    f"{command}: rc {end.rc} control characters {set(controls)} {end.said[-200:] if end.traceback else ''}"
                )
    out = folder.parent / "both.html"
    call([DOCTOR, "report", *map(str, runs[:2]), "-o", str(out)], folder.parent, 90)
    if out.exists():
        pages.append(("report of two", out.as_uri(), ""))
    server = Server(folder)
    try:
        import urllib.parse

        base = f"http://127.0.0.1:{server.port}"
        for run in runs:
            name = urllib.parse.quote(run.name, safe="")
            pages += [
                ("ui run", f"{base}/run/{name}", ""),
                ("ui compare", f"{base}/compare?a={name}&b={urllib.parse.quote(runs[0].name, safe='')}", ""),
            ]
        pages += [("ui list", f"{base}/", ""), ("ui lab", f"{base}/lab", "")]
        with sync_playwright() as play:
            browser = play.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
            context = browser.new_context()
            context.add_init_script("window.__ran = 0; window.alert = () => { window.__ran += 1; }")
            page = context.new_page()
            outside: list[str] = []
            dialogs: list[str] = []
            page.on(
                "request",
                lambda r: outside.append(r.url) if not r.url.startswith((base, "file:", "data:", "blob:")) else None,
            )
            page.on("dialog", lambda d: (dialogs.append(d.message), d.dismiss()))
            page.goto(f"{base}/?token={server.token}")
            page.wait_for_timeout(1500)
            for name, address, _ in pages:
                tried += 1
                page.goto(address, wait_until="load")
                page.wait_for_timeout(2500 if "ui" in name else 800)
                for tab in page.query_selector_all("details:not([open]) > summary")[:60]:
                    with contextlib.suppress(Exception):
                        tab.click(timeout=300)
                for handle in page.query_selector_all("[title], .js-plotly-plot")[:30]:
                    with contextlib.suppress(Exception):
                        handle.hover(timeout=200)
                ran = page.evaluate("window.__ran")
                here = page.url
                inner = page.evaluate(
                    "document.querySelectorAll('img[onerror],svg[onload],iframe,base,[onmouseover],meta[http-equiv=refresh],a[href^=\"javascript:\"]').length"
                )
                if ran or inner or here.split("#")[0].split("?")[0] != address.split("#")[0].split("?")[0]:
                    failed += 1
                    notes.append(f"{name}: scripts ran {ran}, foreign elements {inner}, now at {here[:80]}")
            notes.append(
                f"requests elsewhere {sorted(set(outside))[:4]}, to the trap {asked[:4]}, dialogs {dialogs[:3]}, {len(pages)} pages"
            )
            failed += int(bool(outside or asked or dialogs))
            browser.close()
    finally:
        server.close()
        trap.shutdown()
    yield Line("hostile texts in a browser and terminal", tried, failed, notes)


@campaign_test("decoy")
def decoy():
    """Things that would run if somebody loaded them; and what `replay` starts."""
    origin = nan_run()
    tried = failed = 0
    notes = []
    marker = WORK / "pwned"
    evil = f"import os; os.system('touch {marker}')\n"

    def attempt(name, prepare, words, cwd=None, expect_run=False):
        nonlocal tried, failed
        folder = fresh("decoy")
        run = folder / "run"
        shutil.copytree(origin, run)
        marker.unlink(missing_ok=True)
        prepare(folder, run)
        end = call([w.replace("@", str(run)) for w in words], (cwd or (lambda f: f))(folder), 90)
        words_said = [x for x in end.said.strip().splitlines() if x.strip()]
        tried += 1
        if marker.exists() != expect_run or end.traceback or end.hung:
            failed += 1
        notes.append(f"{name}: ran {marker.exists()}, rc {end.rc}: {' '.join(words_said)[:230]}")

    def info(run, **more):
        (run / "run.json").write_text(json.dumps({**json.loads((run / "run.json").read_text()), **more}))

    def outside(folder, run):
        other = WORK / "elsewhere"
        other.mkdir(exist_ok=True)
        (other / "evil.py").write_text(evil)
        info(run, argv=["evil.py"], cwd=str(other))

    def dots(folder, run):
        other = WORK / "elsewhere"
        other.mkdir(exist_ok=True)
        (other / "evil.py").write_text(evil)
        info(run, argv=["../elsewhere/evil.py"], cwd=str(folder))

    def linked(folder, run):
        outside(folder, run)
        (folder / "train.py").symlink_to(WORK / "elsewhere" / "evil.py")
        info(run, argv=["train.py"], cwd=str(folder))

    def in_run(folder, run):
        (run / "train.py").write_text(evil)
        info(run, argv=["run/train.py"], cwd=str(folder))

    def in_captures(folder, run):
        (run / "captures" / "train.py").write_text(evil)
        info(run, argv=["run/captures/train.py"], cwd=str(folder))

    def other_script(folder, run):
        (folder / "deploy.py").write_text(evil)
        info(run, argv=["deploy.py", "--delete-everything"], cwd=str(folder))

    def right_digest(folder, run):
        (folder / "deploy.py").write_text(evil)
        digest = hashlib.sha256(evil.encode()).hexdigest()
        info(run, argv=["deploy.py", "--delete-everything"], cwd=str(folder), script_sha256=digest)

    def shadowing_folder(folder, run):
        (folder / "own.py").write_text("print(1)\n")
        for name in ("torch.py", "torchdoctor.py", "runpy.py", "sitecustomize.py"):
            (run / "captures" / name).write_text(evil)
        digest = hashlib.sha256(b"print(1)\n").hexdigest()
        info(run, argv=[str(folder / "own.py")], cwd=str(run / "captures"), script_sha256=digest)

    def modules_inside(folder, run):
        (run / "pkg").mkdir()
        for name in ("__main__.py", "train.py", "pkg/__init__.py", "pkg/__main__.py"):
            (run / name).write_text(evil)

    def odd_sources(folder, run):
        (folder / "own.py").write_text("print(1)\n")
        document = next((run / "captures").iterdir()) / "capture.json"
        names = ["~nobody-of-that-name/x.py", "a\0b.py", str(folder / ("a" * 300 + ".py")), str(folder / "own.py")]
        document.write_text(json.dumps({**json.loads(document.read_text()), "sources": dict.fromkeys(names, "0" * 64)}))

    def pickles(folder, run):
        bomb = b"cposix\nsystem\n(S'touch " + str(marker).encode() + b"'\ntR."
        for name in ("tensors.pt", "capture.pkl", "tensors.safetensors", "capture.json", "model.pt"):
            path = next((run / "captures").iterdir()) / name
            path.unlink(missing_ok=True)
            path.write_bytes(bomb)
        for name in ("run.pkl", "digest.npy", "journal.jsonl"):
            (run / name).write_bytes(bomb)

    def modules(folder, run):
        for name in (
            "torch.py",
            "pyarrow.py",
            "secrets.py",
            "json.py",
            "sitecustomize.py",
            "usercustomize.py",
            "numpy.py",
            "click.py",
            "_path.pth",
        ):
            for place in (folder, run):
                (place / name).write_text(evil)

    def settings(folder, run):
        (folder / "pyproject.toml").write_text(
            '[tool.torchdoctor]\nselect = [\'__import__("os").system("touch ' + str(marker) + "\")']\n"
        )
        (run / "pyproject.toml").write_text("[tool.torchdoctor.thresholds]\nx = 1\n")

    def git_hooks(folder, run):
        call(["git", "init", "-q", "."], folder)
        (folder / ".git" / "config").open("a").write(
            f'[core]\n\tfsmonitor = touch {marker}\n\tpager = touch {marker}\n[diff]\n\texternal = touch {marker}\n[filter "x"]\n\tclean = touch {marker}; cat\n[alias]\n\trev-parse = !touch {marker}\n'
        )
        (folder / ".gitattributes").write_text("*.py filter=x diff=x\n")
        (folder / "t.py").write_text(SCRIPTS.joinpath("plain.py").read_text())
        (
            call(["git", "-c", "filter.x.clean=cat", "add", "."], folder),
            call(
                ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-c", "filter.x.clean=cat", "commit", "-qm", "x"],
                folder,
            ),
        )
        (folder / "t.py").open("a").write("\n# changed\n")
        marker.unlink(missing_ok=True)

    replay = [DOCTOR, "replay", "@"]
    attempt("replay, script elsewhere", outside, replay)
    attempt("replay, ../ to elsewhere", dots, replay)
    attempt("replay, a link in this folder to elsewhere", linked, replay)
    attempt("replay, script inside the run folder", in_run, replay)
    attempt("replay, script inside captures", in_captures, replay)
    attempt("replay, another script of this folder, with arguments that the run chose", other_script, replay)
    attempt("replay, forged arguments beside the right digest", right_digest, replay)
    attempt("replay, started in a folder of modules that came with the run", shadowing_folder, replay)
    attempt("replay, the run folder itself as the script", modules_inside, [*replay, "--", "@"])
    attempt("replay, a module of the run folder", modules_inside, [*replay, "--", "-m", "run.train"])
    for words in (["-m", "pkg"], ["-m", "train"], ["-c", "import train"]):
        here = [DOCTOR, "replay", ".", "--", *words]
        attempt(f"replay, standing in the run folder: {words[0]} {words[1]}", modules_inside, here, lambda f: f / "run")
    attempt("replay, sources that no file can be", odd_sources, [*replay, "--", "own.py"])
    attempt("replay, standing in /", outside, replay, lambda f: Path("/"))
    attempt(
        "pickles in place of a capture: report", pickles, [DOCTOR, "report", "@", "--with-captures", "-o", "/dev/null"]
    )
    attempt("pickles in place of a capture: replay", pickles, replay)
    attempt("modules beside a run: diagnose", modules, [DOCTOR, "diagnose", "@"])
    attempt(
        "modules beside a run, standing in it: report",
        modules,
        [DOCTOR, "report", "@", "-o", "r.html"],
        lambda f: f / "run",
    )
    attempt("modules beside a run: python -m torchdoctor", modules, [PYTHON, "-m", "torchdoctor", "diagnose", "@"])
    attempt("modules beside a run: replay", modules, replay)
    attempt("settings with code", settings, [DOCTOR, "diagnose", "@"])
    attempt("git configuration that starts programs: run", git_hooks, [DOCTOR, "run", "t.py"])
    yield Line("decoys that would run code", tried, failed, notes)
