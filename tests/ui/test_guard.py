"""Nobody gets in without the token, under another name, or from another site's page; and no GET changes anything."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from torchdoctor.ui.guard import Access, is_loopback
from torchdoctor.ui.templates import address_of

PATHS = [
    "/",
    "/api/runs",
    "/run/sick",
    "/api/run/sick",
    "/compare?a=sick&b=well",
    "/nothing",
    address_of("ui.css"),
]
PORT, TOKEN = 8123, "right-token"  # as in conftest


@pytest.mark.parametrize("path", PATHS)
def test_no_route_answers_without_the_token(stranger: TestClient, path: str) -> None:
    assert stranger.get(path).status_code == 403
    assert stranger.get(path, headers={"cookie": f"torchdoctor-{PORT}=wrong"}).status_code == 403
    assert stranger.get(path, params={"token": "wrong"}).status_code == 403
    assert stranger.get(path, headers={"cookie": f"torchdoctor-1={TOKEN}"}).status_code == 403


def test_the_token_becomes_a_cookie_that_scripts_and_other_sites_cannot_use(stranger: TestClient) -> None:
    answer = stranger.get("/run/sick", params={"token": TOKEN, "x": "1"})
    given = answer.headers["set-cookie"].lower()
    assert "httponly" in given and "samesite=strict" in given and "path=/" in given
    assert 'url=/run/sick?x=1"' in answer.text and TOKEN not in answer.text
    assert stranger.get("/").status_code == 200


def test_the_token_page_goes_nowhere_else(stranger: TestClient) -> None:
    answer = stranger.get("http://127.0.0.1:8123//evil.example/%22%3E%3Cscript%3E", params={"token": TOKEN})
    assert 'content="0;url=/evil.example/' in answer.text and "<script" not in answer.text


@pytest.mark.parametrize("path", ["/", "/api/run/sick"])
@pytest.mark.parametrize(
    "host",
    [
        *("evil.example", "evil.example:8123", "127.0.0.1.evil.example", "a@127.0.0.1", "", "0x7f.1", "[::1", "[zz]"),
        *("localhost:1:80", "localhost:9000", "127.0.0.1", "localhost", "localhost.:8123", "localhost:"),
        *(
            "localhost:08123",
            "localhost\t:8123",
            "local\thost:8123",
            "me@localhost:8123",
            "localhost:8123@evil.example",
        ),
        *("[::1]x:8123", "[::ffff:127.0.0.1]:8123", "[::1%25lo]:8123", "::1:8123", "127.1:8123", "2130706433:8123"),
        *("localhost:8123/", "localhost:8123#", "localhost:8123?", "localhost:+8123", "localhost:81230"),
        "\uff4cocalhost:8123".encode(),
    ],
)
def test_other_names_of_the_host_are_refused(client: TestClient, path: str, host: str | bytes) -> None:
    assert client.get(path, headers={"host": host}).status_code == 421


@pytest.mark.parametrize("host", ["localhost:8123", "127.0.0.1:8123", "[::1]:8123", "LOCALHOST:8123"])
def test_names_of_this_machine_are_taken(stranger: TestClient, host: str) -> None:
    answer = stranger.get("/", headers={"host": host, "cookie": f"torchdoctor-{PORT}={TOKEN}"})
    assert answer.status_code == 200


def test_the_usual_port_needs_no_number() -> None:
    assert Access.over("127.0.0.1", 80, "t").admits_host("localhost")
    assert not Access.over("127.0.0.1", 81, "t").admits_host("localhost")


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:9999", "https://127.0.0.1:8123"])
def test_other_origins_are_refused(client: TestClient, path: str, origin: str) -> None:
    assert client.get(path, headers={"origin": origin}).status_code == 403


def test_parts_asked_for_by_pages_of_other_sites_are_refused_and_links_are_not(client: TestClient) -> None:
    for site in ("cross-site", "same-site"):
        asked = {"sec-fetch-site": site, "sec-fetch-mode": "no-cors"}
        assert client.get("/api/runs", headers=asked).status_code == 403
        assert client.get("/", headers={"sec-fetch-site": site, "sec-fetch-mode": "navigate"}).status_code == 200


@pytest.mark.parametrize("path", PATHS)
def test_every_answer_has_the_headers(client: TestClient, path: str) -> None:
    for answer in (client.get(path), client.get(path, headers={"host": "evil.example"})):
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy and "script-src 'self';" in policy and "frame-ancestors 'none'" in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "same-origin"
        assert answer.headers["cross-origin-resource-policy"] == "same-origin"
        assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize(
    "name",
    ["%2e%2e", "..%2f..%2fetc", "%2fetc%2fpasswd", "....//", "sick%2f..%2fwell", "%00", "..%5c..", "~", "%ff"],
)
def test_runs_are_found_by_name_and_nothing_else_is(client: TestClient, runs: Path, name: str) -> None:
    for path in (f"/run/{name}", f"/api/run/{name}", f"/api/run/{name}/chart/loss", f"/compare?a={name}&b=sick"):
        answer = client.get(path)
        assert answer.status_code == 404, path
        assert str(runs) not in answer.text and "root:" not in answer.text


@pytest.mark.parametrize("name", ["..%2fguard.py", "%2e%2e", "page.js", "templates.py", "ui.css%00"])
def test_static_files_are_a_fixed_list(client: TestClient, name: str) -> None:
    version = address_of("ui.css").split("/")[2]
    assert client.get(f"/static/{version}/{name}").status_code == 404


def test_links_are_not_followed_to_other_folders(client: TestClient, runs: Path, tmp_path: Path) -> None:
    (runs / "well").rename(tmp_path / "elsewhere")
    (runs / "link").symlink_to(tmp_path / "elsewhere")
    assert client.get("/run/link").status_code == 404
    assert "link" not in client.get("/api/runs").text


@pytest.mark.parametrize("path", [p for p in PATHS if p != "/nothing"])
def test_get_changes_nothing_and_nothing_else_is_allowed(client: TestClient, runs: Path, path: str) -> None:
    before = _state(runs)
    assert client.get(path).status_code in (200, 404)
    assert client.head(path).status_code in (200, 404)
    for method in ("POST", "PUT", "DELETE", "PATCH"):
        assert client.request(method, path).status_code == 405
    assert _state(runs) == before


def test_scripts_are_kept_by_browsers_and_pages_are_not(client: TestClient) -> None:
    assert "immutable" in client.get(address_of("plotly.js")).headers["cache-control"]
    assert client.get("/").headers["cache-control"] == "no-store"


def test_names_when_other_computers_may_ask() -> None:
    wide = Access.over("0.0.0.0", 1, "t")
    assert wide.admits_host("192.168.1.7:80") and wide.admits_host("[fe80::1]:80")
    assert not wide.admits_host("evil.example") and not wide.admits_host("1.2.3.4.nip.io")
    assert not Access.over("127.0.0.1", 1, "t").admits_host("192.168.1.7")
    assert [is_loopback(h) for h in ("127.0.0.1", "::1", "localhost", "127.9.9.9", "0.0.0.0", "::", "example.org")] == [
        *(True, True, True, True, False, False, False)
    ]


def _state(folder: Path) -> list[tuple[str, int, int]]:
    files = [Path(top) / name for top, _, names in os.walk(folder) for name in names]
    return sorted((str(f), f.stat().st_size, f.stat().st_mtime_ns) for f in files)
