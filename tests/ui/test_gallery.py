"""The gallery's pages: cards that grow, forms that only our pages can send, curves at large, the quiz."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from gallery_stand_in import LOG, standing_in
from torchdoctor.lab.gallery.cabinet import Cabinet
from torchdoctor.lab.gallery.exhibits import EXHIBITS
from torchdoctor.lab.gallery.training import Trainer
from torchdoctor.ui.app import build_app
from torchdoctor.ui.gallery import Gallery
from torchdoctor.ui.guard import Access
from torchdoctor.ui.library import Library

TOKEN, PORT = "right-token", 8123
BASE = f"http://127.0.0.1:{PORT}"
ACCESS = Access.over("127.0.0.1", PORT, TOKEN)
FORM = {"form_token": ACCESS.form_token}
SPIKE = EXHIBITS["spike"]
POSTS = ["/lab/curves/train", "/lab/curves/stop", "/lab/curves/remove"]


@pytest.fixture
def cabinet(tmp_path: Path) -> Cabinet:
    return Cabinet(tmp_path / "cache")


@pytest.fixture
def opened(cabinet: Cabinet, tmp_path: Path) -> Iterator[Callable[..., TestClient]]:
    clients = []

    def go(way: str = "well", token: str = TOKEN) -> TestClient:
        app = build_app(Library(tmp_path / "none"), ACCESS, Gallery(Trainer(cabinet, standing_in(way))))
        client = TestClient(app, base_url=BASE, follow_redirects=False)  # type: ignore[arg-type]
        clients.append(client)
        client.__enter__()
        client.get("/", params={"token": token})
        return client

    yield go
    for client in clients:
        client.__exit__(None, None, None)


@pytest.fixture
def trained(opened: Callable[..., TestClient], wait_for: Callable[..., Any]) -> TestClient:
    """With one curve, and its twin."""
    client = opened()
    for name in ("spike", "spike.twin"):
        assert client.post("/lab/curves/train", data={**FORM, "name": name}).status_code == 303
    wait_for(lambda: not client.get("/api/lab/curves").json()["busy"])
    return client


def test_the_front_page_names_the_rooms(opened: Callable[..., TestClient]) -> None:
    page = opened().get("/lab").text
    assert 'href="/lab/curves"' in page and 'href="/lab/clipping"' in page


def test_before_anything_is_trained_every_card_says_what_to_look_for(
    opened: Callable[..., TestClient], cabinet: Cabinet
) -> None:
    page = opened().get("/lab/curves").text
    assert all(exhibit.title in page and exhibit.look in page for exhibit in EXHIBITS.values())
    assert page.count("not trained yet") == 8 and "Train all" in page and "<svg" not in page
    assert not cabinet.folder.exists()


@pytest.mark.parametrize("path", POSTS)
def test_only_our_own_forms_train_stop_and_remove(
    opened: Callable[..., TestClient], cabinet: Cabinet, path: str
) -> None:
    client, right = opened(), {**FORM, "name": "spike"}
    assert client.get(path, params=right).status_code in (404, 405)
    assert client.post(path, data={"name": "spike"}).status_code == 403
    assert client.post(path, data={**right, "form_token": "wrong"}).status_code == 403
    assert client.post(path, data=right, headers={"origin": "http://evil.example"}).status_code == 403
    assert client.post(path, data={**right, "rest": "x" * 500_000}).status_code == 413
    stranger = opened(token="wrong")
    assert stranger.post(path, data=right).status_code == 403 == stranger.get("/lab/curves").status_code
    assert not cabinet.folder.exists()


@pytest.mark.parametrize("name", ["", "no-such", "../spike", "spike/../..", "<b>"])
def test_names_that_are_not_ours_are_refused(opened: Callable[..., TestClient], cabinet: Cabinet, name: str) -> None:
    client = opened()
    answer = client.post("/lab/curves/train", data={**FORM, "name": name})
    assert answer.status_code == 400 and "<" not in answer.text
    assert client.post("/lab/curves/remove", data={**FORM, "name": name}).status_code == 400
    assert not (cabinet.folder / LOG).exists()
    assert client.post("/lab/curves/stop", data={**FORM, "back": name}).headers["location"] == "/lab/curves"


def test_a_curve_grows_while_it_trains(
    opened: Callable[..., TestClient], cabinet: Cabinet, wait_for: Callable[..., Any]
) -> None:
    client = opened("slow")
    client.post("/lab/curves/train", data={**FORM, "name": "spike"})
    client.post("/lab/curves/train", data={**FORM, "name": "healthy"})

    def card(name: str = "spike") -> str:
        found = client.get("/api/lab/curves").json()
        return str(found["cards"][name]) if found["busy"] else ""

    half = wait_for(lambda: card() if "<svg" in card() else "")
    assert "training now" in half and "waits for its turn" in card("healthy")
    found = client.get("/api/lab/curves").json()
    assert "cards" not in client.get("/api/lab/curves", params={"since": found["stamp"]}).json()
    (cabinet.folder / "go").touch()
    wait_for(lambda: not client.get("/api/lab/curves").json()["busy"])
    whole = client.get("/api/lab/curves").json()["cards"]["spike"]
    assert "<svg" in whole and whole.split("<svg")[1] != half.split("<svg")[1] and "/lab/run/" in whole


def test_a_card_says_why_its_training_failed(opened: Callable[..., TestClient], wait_for: Callable[..., Any]) -> None:
    client = opened("fails")
    client.post("/lab/curves/train", data={**FORM, "name": "spike"})
    wait_for(lambda: not client.get("/api/lab/curves").json()["busy"])
    card = client.get("/api/lab/curves").json()["cards"]["spike"]
    assert "ValueError: no such luck" in card and "Train again" in card


def test_a_cache_that_cannot_be_kept_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    gallery = Gallery(Trainer(Cabinet(tmp_path / "file" / "lab")))
    with TestClient(build_app(Library(tmp_path / "none"), ACCESS, gallery), base_url=BASE) as client:  # type: ignore[arg-type]
        client.get("/", params={"token": TOKEN})
        answer = client.post("/lab/curves/train", data={**FORM, "name": "all"})
        assert answer.status_code == 409 and "XDG_CACHE_HOME" in answer.text


def test_the_page_opens_without_a_home_and_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torchdoctor.lab.gallery.cabinet.Path.home", _no_home)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    with TestClient(build_app(Library(tmp_path / "none"), ACCESS), base_url=BASE) as client:  # type: ignore[arg-type]
        assert client.get("/", params={"token": TOKEN}).status_code == 200
        assert client.get("/lab/clipping").status_code == client.get("/api/lab/curves").status_code == 200
        for page in ("/lab/curves", "/lab/curves/spike"):
            assert re.search(r'role="alert">The gallery keeps its trainings in your home', client.get(page).text)
        answer = client.post("/lab/curves/train", data={**FORM, "name": "all"})
        assert answer.status_code == 409 and "XDG_CACHE_HOME" in answer.text


def _no_home() -> Path:
    raise RuntimeError("Could not determine home directory.")


def test_the_end_of_the_server_ends_the_training(
    opened: Callable[..., TestClient], cabinet: Cabinet, wait_for: Callable[..., Any], tmp_path: Path
) -> None:
    gallery = Gallery(Trainer(cabinet, standing_in("hangs")))
    with TestClient(build_app(Library(tmp_path / "none"), ACCESS, gallery), base_url=BASE) as client:  # type: ignore[arg-type]
        client.get("/", params={"token": TOKEN})
        client.post("/lab/curves/train", data={**FORM, "name": "all"}, follow_redirects=False)
        wait_for(lambda: (cabinet.folder / LOG).exists())
        assert gallery.trainer.is_busy
    wait_for(lambda: not gallery.trainer.is_busy)
    assert (cabinet.folder / LOG).read_text().count("begin") == 1


def test_a_verdict_that_does_not_agree_is_not_passed_off_as_one(trained: TestClient) -> None:
    """The stand-in has no outlier batch."""
    said = trained.get("/api/lab/curves/spike").json()["said"]
    assert "torchdoctor saw something else" in said and "That is torchdoctor's own verdict" not in said


def test_a_curve_at_large_has_marks_and_its_twin_when_asked(trained: TestClient) -> None:
    page = trained.get("/lab/curves/spike").text
    assert SPIKE.title in page and str(SPIKE.training.case.path) in page and "Compare with the healthy twin" in page
    assert trained.get("/lab/curves/no-such").status_code == 404 == trained.get("/api/lab/curves/no-such").status_code
    alone = trained.get("/api/lab/curves/spike").json()
    both = trained.get("/api/lab/curves/spike", params={"marks": "1", "twin": "1"}).json()
    assert [chart["name"] for chart in alone["charts"]] == ["loss", "gradient-norm"]
    assert "gradient-norm-twin" in [chart["name"] for chart in both["charts"]] and alone["stamp"] != both["stamp"]
    assert (
        not alone["busy"]
        and "charts" not in trained.get("/api/lab/curves/spike", params={"since": alone["stamp"]}).json()
    )


def test_a_trained_curve_has_a_run_page_of_its_own_without_a_journal_to_write_to(trained: TestClient) -> None:
    name = SPIKE.training.name
    page = trained.get(f"/lab/run/{name}").text
    assert 'data-place="/lab"' in page and "form_token" not in page
    assert trained.get(f"/lab/api/run/{name}").json()["status"].startswith("finished")
    assert trained.get(f"/run/{name}").status_code == 404 == trained.get("/lab/run/no-such").status_code
    assert trained.post(f"/lab/run/{name}/note", data={**FORM, "text": "x"}).status_code in (404, 405)
    assert SPIKE.twin is not None
    compared = trained.get("/lab/compare", params={"a": name, "b": SPIKE.twin.name})
    assert compared.status_code == 200 and f'href="/lab/run/{name}"' in compared.text


def test_a_question_hides_the_name_and_its_answer_points_at_the_place(trained: TestClient) -> None:
    assert 'id="quiz"' in trained.get("/lab/curves/quiz").text
    found = trained.get("/api/lab/curves/quiz", params={"seed": "5"}).json()
    assert found["answer"] in [option["name"] for option in found["options"]] and len(found["options"]) == 4
    assert found["chart"]["title"] == "The loss of a training" and not found["chart"]["layout"].get("annotations")
    assert EXHIBITS[found["answer"]].look in re.sub("&#39;", "'", found["said"])
    again = trained.get("/api/lab/curves/quiz", params={"seed": "5", "last": found["run"]}).json()
    assert again["run"] != found["run"]
    assert trained.get("/api/lab/curves/quiz", params={"seed": "x"}).status_code == 400


def test_without_a_training_there_is_no_question(opened: Callable[..., TestClient]) -> None:
    client = opened()
    assert "Nothing is trained yet" in client.get("/lab/curves/quiz").text
    assert client.get("/api/lab/curves/quiz").status_code == 400


def test_what_was_trained_is_there_next_time_until_it_is_removed(
    trained: TestClient, opened: Callable[..., TestClient], cabinet: Cabinet
) -> None:
    later = opened()
    assert later.get("/lab/curves").text.count("<svg") == 2  # the twin of this one hangs there, too
    assert later.post("/lab/curves/remove", data={**FORM, "name": "spike"}).status_code == 303
    assert not cabinet.holds(SPIKE.training.name) and later.get("/lab/curves").text.count("<svg") == 1
    assert SPIKE.twin is not None and cabinet.holds(SPIKE.twin.name)
    later.post("/lab/curves/remove", data={**FORM, "name": "all"})
    assert cabinet.size() == 0
