"""Secrets are taken out of command lines and diffs; what is none stays, so that a run can be repeated."""

from __future__ import annotations

import time

import pytest

from torchdoctor.scrubbing import scrub_argv, scrub_text


@pytest.mark.parametrize(
    ("given", "clean"),
    [
        ("--api-key abc", "--api-key ***"),
        ("--api_key=abc", "--api_key=***"),
        ("--hf-token hf_x --lr 3", "--hf-token *** --lr 3"),
        ("--WANDB.KEY=abc", "--WANDB.KEY=***"),
        ("--password hunter2 data", "--password *** data"),
        ("-token abc", "-token ***"),
        ("--secret=", "--secret="),
        ("--client-secret -abc", "--client-secret ***"),
        ("--token --verbose", "--token --verbose"),
        ("wandb.api_key=abc", "wandb.api_key=***"),
        ("+trainer.auth=abc", "+trainer.auth=***"),
        ("MY_TOKEN=abc", "MY_TOKEN=***"),
        ("--url https://bob:pw@host/x", "--url https://***@host/x"),
        ("--url=https://token@host/x", "--url=https://***@host/x"),
        ("--url s3://bucket/x?access_token=abc&b=1", "--url s3://bucket/x?access_token=***&b=1"),
        ("--note hf_abcdefghijklmnopqrstuvwxyz", "--note ***"),
        ("--note ghp_abcdefghijklmnopqrstuvwxyz0123456789", "--note ***"),
    ],
)
def test_secrets_go(given: str, clean: str) -> None:
    assert " ".join(scrub_argv(given.split())) == clean


@pytest.mark.parametrize(
    "given",
    [
        "train.py --lr 0.1 --batch-size 32",
        "--tokenizer gpt2",
        "--max-tokens 512 --max_new_tokens=5",
        "--pad-token <pad> --eos_token=</s>",
        "--num-key-value-heads 8 --key-dim=64",
        "--keypoints 17 --author me",
        "--url https://host/x?page=2",
        "model.tokenizer_name=gpt2 optimizer.lr=3e-4",
        "/data/keys/train.csv",
    ],
)
def test_what_is_no_secret_stays(given: str) -> None:
    assert " ".join(scrub_argv(given.split())) == given


@pytest.mark.parametrize(
    ("line", "secret"),
    [
        ('API_KEY = "s3cret"', "s3cret"),
        ("os.environ['HF_TOKEN'] = 's3cret'", "s3cret"),
        ('wandb.login(key="s3cret")', "s3cret"),
        ('{"password": "s3cret", "lr": 1}', "s3cret"),
        ('os.environ.setdefault("AWS_SECRET_KEY", "s3cret")', "s3cret"),
        ("password: hunter", "hunter"),
        ("API_TOKEN=abc123def", "abc123def"),
        ('token: str = "s3cret"', "s3cret"),
        ("url = 'postgres://me:s3cret@db/x'", "s3cret"),
        ("x = 'sk-abcdefghijklmnopqrstuvwxyz'", "abcdefghijkl"),
        ("x = AKIAABCDEFGHIJKLMNOP", "ABCDEFGHIJKLMNOP"),
        ("-----BEGIN RSA PRIVATE KEY-----\n+MIIEs3cret\n-----END RSA PRIVATE KEY-----", "s3cret"),
    ],
)
def test_secrets_go_from_a_diff(line: str, secret: str) -> None:
    clean = scrub_text(f"+before = 1\n+{line}\n+after = 2\n")
    assert secret not in clean and "before = 1" in clean and "after = 2" in clean


@pytest.mark.parametrize(
    "line",
    [
        'tokenizer = AutoTokenizer.from_pretrained("gpt2")',
        "token = self.token",
        "key = 3",
        "keys, values = attention(x)",
        "for key in mapping:",
        "self.key = nn.Linear(3, 4)",
        "password = None",
        'optimizer = Adam(lr="auto")',
    ],
)
def test_code_stays(line: str) -> None:
    assert scrub_text(f"+{line}\n") == f"+{line}\n"


UNITS = [
    "key",
    "a",
    "a:",
    "http://a:",
    "eyJ",
    "key: ",
    'key="',
    "sk-",
    "?key",
    "-----BEGIN PRIVATE KEY-----",
    "\\",
    "'",
]
UNITS += [
    "key:",
    "key=",
    "password:\n",
    "mysql ",
    "machine ",
    "login ",
    "--token ",
    "Bearer ",
    "api key ",
    "token.",
    "<",
]
UNITS += [
    "key:a=",
    "('key',",
    "auth=(",
    "[{(",
    "a@",
    "://",
    "MII",
    "A" * 200,
    "<key>",
    "name: key ",
    "\\'",
    "key=['",
    "_",
]


UNITS += [
    *(
        "a-",
        "a+",
        "a.",
        "pa-",
        "pypi-",
        "secrets:\n a: b\n",
        "api_key=f(",
        'api_key="a"',
        '"a"+',
        '<a name="',
        "echo a ",
    ),
    *("jdbc:oracle:thin:a/", "#define ", 'hmac.new("', "hooks.a/", "/hook/"),
]


@pytest.mark.parametrize("hint", ["", "password login mysql: ", "? "])
@pytest.mark.parametrize("unit", UNITS)
def test_the_time_it_takes_does_not_explode(unit: str, hint: str) -> None:
    """A pattern that is quadratic takes minutes for this; CPU time, since the machine may be busy."""
    begin = time.process_time()
    scrub_text(hint + unit * (100_000 // len(unit)))
    assert time.process_time() - begin < 5


@pytest.mark.parametrize("head", ["login a ", "password: ", 'password = "x"', "auth=(", "machine a ", "curl -u ", ""])
def test_long_runs_of_one_character_take_no_longer(head: str) -> None:
    begin = time.process_time()
    for run in ("\t", " ", "a", "-", "/", '"', "\\", "\n "):
        scrub_text(f"password? {head}{run * (40_000 // len(run))}")
    assert time.process_time() - begin < 5
