"""Only the studio's own page gets in: hosts, origins, tokens, kinds and sizes of requests."""

import asyncio

import pytest

from clearhead.server import guard
from clearhead.server.guard import Guard, ServerAddress, is_loopback
from clearhead.studio.app import Studio
from tests.studio.conftest import HOME, client_of

ASK = {"model": "random-gpt2", "question": "next-token", "text": "The robot"}


@pytest.mark.parametrize(
    ("host", "known"),
    [
        ("127.0.0.1:8421", True),
        ("localhost:8421", True),
        ("LOCALHOST:8421", True),
        ("[::1]:8421", True),
        ("127.0.0.1", False),
        ("127.0.0.1:80", False),
        ("evil.example:8421", False),
        ("localhost.evil.example:8421", False),
        ("127.0.0.1:8421@evil.example", False),
        ("10.0.0.7:8421", False),
        ("", False),
        (":8421", False),
    ],
)
def test_a_foreign_host_is_refused(page, host, known):
    assert ServerAddress("127.0.0.1", 8421).accepts_host(host) is known
    answer = page.get("/api/state", headers={"host": host})
    assert answer.status_code == (200 if known else 421)
    assert known or "address" in answer.json()["error"]["message"]


def test_hosts_of_a_server_for_all_addresses():
    address = ServerAddress("0.0.0.0", 8421, "secret")
    assert address.accepts_host("10.0.0.7:8421")
    assert address.accepts_host("localhost:8421")
    assert not address.accepts_host("evil.example:8421")
    assert ServerAddress("192.168.1.2", 80).accepts_host("192.168.1.2")  # browsers leave port 80 out
    assert not ServerAddress("192.168.1.2", 8421).accepts_host("127.0.0.1:8421")


@pytest.mark.parametrize(
    ("host", "here"),
    [("127.0.0.1", True), ("127.9.9.9", True), ("localhost", True), ("::1", True), ("0.0.0.0", False), ("::", False),
     ("192.168.0.2", False), ("example.org", False)],
)  # fmt: skip
def test_what_is_this_machine_alone(host, here):
    assert is_loopback(host) is here


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://localhost:3000"},
        {"origin": "http://localhost:8421"},  # the page was opened by the other name
        {"origin": "https://127.0.0.1:8421"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"},
    ],
)
def test_another_site_is_refused(page, headers):
    assert page.get("/api/state", headers=headers).status_code == 403
    assert page.post("/api/ask", json=ASK, headers=headers).status_code == 403
    if "sec-fetch-mode" not in headers:
        assert page.get("/", headers=headers).status_code == 403


def test_the_page_itself_gets_in_and_a_link_from_elsewhere_opens_it(page):
    own = {"origin": HOME, "sec-fetch-site": "same-origin", "sec-fetch-mode": "cors"}
    assert page.get("/api/state", headers=own).status_code == 200
    assert page.post("/api/ask", json=ASK, headers=own).status_code == 200
    visit = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    assert page.get("/lab", headers=visit).status_code == 200
    assert page.get("/static/studio/app.js", headers=visit).status_code == 403


@pytest.mark.parametrize(
    "kind", [None, "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "text/json"]
)
def test_a_post_must_be_json(page, kind):
    """These are the kinds that a form of another site could send without asking first."""
    headers = {} if kind is None else {"content-type": kind}
    answer = page.post("/api/ask", content=b'{"model": "random-gpt2"}', headers=headers)
    assert answer.status_code == 415
    assert "application/json" in answer.json()["error"]["message"]


@pytest.mark.parametrize("method", ["PUT", "DELETE", "OPTIONS", "PATCH", "TRACE"])
def test_other_methods_are_refused(page, method):
    answer = page.request(method, "/api/ask")
    assert answer.status_code == 405
    assert not [name for name in answer.headers if name.startswith("access-control")]


def test_every_answer_carries_the_rules_for_browsers(page):
    for path in ("/", "/static/views/draw.js", "/api/state", "/nowhere"):
        headers = page.get(path).headers
        rules = headers["content-security-policy"]
        assert "default-src 'none'" in rules
        assert "script-src 'self';" in rules
        assert "connect-src 'self';" in rules
        assert "frame-ancestors 'none'" in rules
        assert "unsafe" not in rules
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
    assert "content-security-policy" in page.get("/", headers={"host": "evil.example"}).headers


# ---- the token


@pytest.fixture(scope="module")
def abroad():
    return Studio(address=ServerAddress("0.0.0.0", 8421, "right-token"))


def test_without_the_token_nothing_is_told(abroad):
    with client_of(abroad) as client:
        for path in (
            "/",
            "/lab",
            "/api/state",
            "/static/studio/app.js",
            "/?token=wrong",
            "/?token=",
            "/api/state?token=x",
        ):
            assert client.get(path).status_code == 401
        assert client.post("/api/ask?token=right-token", json=ASK).status_code == 401
        assert client.get("/?token=right-token&token=right-token").status_code == 401
        assert client.get("/", headers={"cookie": "clearhead-8421=right-toke"}).status_code == 401
        assert client.get("/", headers={"cookie": "clearhead-9000=right-token"}).status_code == 401


def test_the_token_becomes_a_strict_cookie_and_leaves_the_address(abroad):
    with client_of(abroad) as client:
        answer = client.get("/lab?model=stories&token=right-token", follow_redirects=False)
        assert answer.status_code == 303
        assert answer.headers["location"] == "/lab?model=stories"
        cookie = answer.headers["set-cookie"]
        assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= {part.strip() for part in cookie.split(";")}
        assert client.get("/lab").status_code == 200
        assert client.get("/api/state").status_code == 200
        assert client.get("/api/state", headers={"origin": "http://evil.example"}).status_code == 403


def test_the_token_leads_to_no_other_site(abroad):
    with client_of(abroad) as client:
        answer = client.get(f"{HOME}//evil.example/?token=right-token", follow_redirects=False)
        assert answer.headers["location"] == "/evil.example/"


def test_tokens_are_compared_in_constant_time(monkeypatch, abroad):
    seen = []
    monkeypatch.setattr(guard.hmac, "compare_digest", lambda a, b: seen.append((a, b)) or False)
    with client_of(abroad) as client:
        assert client.get("/?token=right-token").status_code == 401
    assert seen == [(b"right-token", b"right-token")]


# ---- sizes


def run(app, headers, messages):
    """Call the guard as a server would; (status, how many messages of the body it took)."""
    sent, taken = [], []

    async def receive():
        taken.append(1)
        if len(taken) > len(messages):
            await asyncio.sleep(60)
        return messages[len(taken) - 1]

    async def send(message):
        sent.append(message)

    names = {"host": "127.0.0.1:8421", "content-type": "application/json", **headers}
    pairs = [(name.encode(), value.encode()) for name, value in names.items()]
    scope = {"type": "http", "method": "POST", "path": "/api/ask", "query_string": b"", "headers": pairs}
    asyncio.run(app(scope, receive, send))
    return sent[0]["status"], len(taken)


async def echo(scope, receive, send):
    message = await receive()
    await send({"type": "http.response.start", "status": 200 + (len(message["body"]) % 100), "headers": []})


def test_a_body_that_says_it_is_long_is_not_read():
    app = Guard(echo, ServerAddress("127.0.0.1", 8421), max_body=100)
    assert run(app, {"content-length": "101"}, []) == (413, 0)
    assert run(app, {"content-length": "9" * 5000}, []) == (413, 0)
    assert run(app, {"content-length": "-1"}, []) == (413, 0)


def test_a_body_in_pieces_is_read_up_to_the_limit():
    app = Guard(echo, ServerAddress("127.0.0.1", 8421), max_body=100)
    piece = {"type": "http.request", "body": b"x" * 60, "more_body": True}
    assert run(app, {}, [piece] * 50) == (413, 2)
    assert run(app, {}, [piece, {"type": "http.request", "body": b"x" * 39}]) == (299, 2)


def test_a_body_that_never_comes_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(guard, "BODY_SECONDS", 0.05)
    app = Guard(echo, ServerAddress("127.0.0.1", 8421))
    assert run(app, {}, [{"type": "http.request", "body": b"{", "more_body": True}])[0] == 408
    assert run(app, {}, [{"type": "http.disconnect"}])[0] == 400


def test_a_huge_body_is_refused_in_words(page):
    answer = page.post("/api/ask", json={**ASK, "text": "x" * 300_000})
    assert answer.status_code == 413
    assert "too long" in answer.json()["error"]["message"]
