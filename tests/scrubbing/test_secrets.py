"""Forms in which secrets come, and texts that only look like them. X stands for the secret."""

from __future__ import annotations

import shlex

import pytest

from torchdoctor.scrubbing import scrub, scrub_argv, scrub_text

X = "Zq7Vx9Lw2Rk4Tn8B"
"""No form of any service."""
HEX = "0f1e2d3c4b5a69788796a5b4c3d2e1f0"

ARGUMENTS = [
    *("-p X", "--pass X", "--pw X", "--pat X", "--jwt X", "--cookie X", "--session X", "--secret --X", "--pwd=X"),
    *("--api-key X", "--api_key=X", "--apiKey X", "--apikey=X", "--APIKEY X", "--wandb-key X", "--hf_token=X"),
    *(
        "--db.password X",
        "+trainer.logger.token=X",
        "~auth=X",
        "WANDB_API_KEY=X",
        "--passphrase X",
        "--otp X",
        "--dsn X",
    ),
    *("--secret-access-key X", "--sas-token X", "--credentials X", "--bearer X", "--oauth-token X", "--session-id=X"),
    *(
        "--header 'Authorization: Bearer X'",
        "-H 'X-Api-Key: X'",
        "--header Authorization: Bearer X",
        "-H 'Cookie: a=X'",
    ),
    *("-u me:X", "--user me:X", "-pX", "-t X", "--webhook X", "--connection-string 'Server=h;Pwd=X;'", "/password:X"),
    *("--dbpass X", "--mysql-pwd X", "--login me:X", "--signing-secret X", "--env WANDB_API_KEY=X", "-Dapi.key=X"),
    *('--kwargs {"token":"X"}', "--config {api_key:X}", "--set db.password=X", "--X-Api-Key X", "--smtp.pass X"),
    "--url https://h.blob.core.windows.net/c/b?sv=2024-01-01&se=2026-01-01&sig=X",
    "--url https://b.s3.amazonaws.com/k?X-Amz-Credential=X&X-Amz-Signature=X",
    "--url https://storage.googleapis.com/b/o?X-Goog-Algorithm=GOOG4&X-Goog-Signature=X",
    "--hook https://hooks.slack.com/services/T000/B000/X",
    "--db postgres://me:X@host/db",
    "--db postgres://me:a@X@host/db",
    "--db postgres://me:a/X@host/db",
    "--db mongodb+srv://me:a?X#b@host/db",
    "--db redis://:X@host:6379/0",
    "--proxy me:X@proxy.example.com:8080",
    *("--jdbc jdbc:oracle:thin:scott/X@//h:1521/x", "--seed-phrase X", "--csrf X", "--mfa X", "--pincode X"),
    *("--pgpass X", "--api X"),
    "--headers {Authorization:Bearer X}",
]

TEXTS = [
    # exceptions and log lines
    "RuntimeError: cannot reach https://u:X@h with token=X",
    "401 for url: https://api.example.com/v1?key=X&page=2",
    "401 for url https://x.example.com/cb#access_token=X&x=1",
    "request failed: {'Authorization': 'Bearer X'}",
    "headers={'x-api-key': 'X', 'accept': '*/*'}",
    "Authorization: Basic X",
    "Proxy-Authorization: Digest username=a, response=X",
    "Set-Cookie: sid=X; Path=/",
    "curl -H 'Authorization: token X' https://api.github.com",
    "sent Bearer X to the server",
    "Command '['curl', '-u', 'me:X', 'https://h']' returned 22",
    "Namespace(lr=0.1, api_key='X', wandb_token='X')",
    "Config(token=SecretStr('ok'), password='X')",
    "could not connect: Driver={ODBC};Server=h;Uid=me;Pwd=X;Encrypt=yes",
    "DefaultEndpointsProtocol=https;AccountName=a;AccountKey=X==;EndpointSuffix=core.windows.net",
    "Endpoint=sb://h/;SharedAccessKeyName=Root;SharedAccessKey=X=",
    "host=db user=me password=X dbname=d",
    "login with password: X",
    "the key is api_key -> no, api_key = X",
    "wandb login X" + HEX,
    "POST https://discord.com/api/webhooks/123/X",
    "POST https://a.webhook.office.com/webhookb2/X@X/IncomingWebhook/X/X",
    "POST https://prod.westus.logic.azure.com:443/workflows/X/triggers?sig=X",
    "POST https://mattermost.example.com/hooks/X",
    "POST https://api.telegram.org/botX/sendMessage",
    "POST https://open.feishu.cn/open-apis/bot/v2/hook/X",
    "POST https://oapi.dingtalk.com/robot/send?access_token=X",
    "dsn https://X@o1.ingest.sentry.io/2",
    "jdbc:mysql://h:3306/d?user=me&password=X",
    'raise ValueError("bad token=X")',
    # files in a diff
    "export WANDB_API_KEY=X # comment",
    "{user: a, token: X}",
    "machine h login u password X",
    "  password X",
    "pass: X",
    "api_key:\n+  X",
    "API_KEY = (\n+    'X'\n+)",
    "client_secret: >-\n+  X",
    "ENV HF_TOKEN X",
    "x = 1; api_key = 'X'",
    "f(x, api_key = 'X', y=2)",
    "os.environ['WANDB_API_KEY'] = 'X'",
    "os.getenv('API_KEY', 'X')",
    "parser.add_argument('--api-key', type=str, default='X')",
    "if password == 'X':",
    'API_KEY: Final[str] = "X"',
    'config = """{"token": "X"}"""',
    'body = \'{\\"token\\": \\"X\\"}\'',
    "<password>X</password>",
    "- name: DB_PASSWORD\n+  value: X",
    "//registry.npmjs.org/:_authToken=X",
    "aws_secret_access_key = X",
    "set TOKEN=X",
    "$env:API_KEY = 'X'",
    "--api-key X train.py",
    "password := X",
    "login(key='X')",
    "token: str | None = 'X'",
    "{'api_key': ['X', 'b']}",
    "{'secrets': {'a': 'X'}}",
    "PASSWORD=`X`",
    "password=a#X",
    "password=a&X",
    'password = f"X"',
    "mysql -u root -pX db",
    "sshpass -p X ssh host",
    "redis-cli -a X",
    "docker login -u me -p X",
    "Incorrect API key provided: X. You can find yours at",
    "wandb: ERROR API key X is not valid",
    "with the password 'X'",
    "aws configure set aws_secret_access_key X",
    "requests.get(u, auth=('me', 'X'))",
    "HTTPBasicAuth('me', 'X')",
    "jwt.encode(payload, 'X')",
    "Fernet(b'X=')",
    "comet_ml.Experiment('X', project_name='p')",
    "https://h/path;jsessionid=X?x=1",
    "msbuild /p:Password=X",
    "git clone https://oauth2:X@gitlab.com/a/b.git",
    "https://h/?Signature=X&Expires=1&Key-Pair-Id=X",
    "SharedAccessSignature sr=h&sig=X&se=1",
    "kubectl create secret generic a --from-literal=password=X",
    "{'PRIVATE-TOKEN': 'X'}",
    "password = 'it\\'s X'",
    # a line of a diff that begins with an address
    "redis://:X@h:6379/0",
    "mssql+pyodbc://u:X@h/d",
    "git+https://X@github.com/o/r.git@v1",
    "me:X@proxy.example.com:8080",
    "hooks.slack.com/services/A/B/X",
    "jdbc:oracle:thin:scott/X@h:1521:x",
    # calls, texts in pieces, and other languages
    "api_key: str = field(default='X')",
    "api_key: SecretStr = SecretStr('X')",
    "api_key = read(name, 'X')",
    "api_key = 'abc' + 'X'",
    "api_key = 'abc' 'X'",
    "api_key = u'X'",
    'string password = @"X";',
    '#define API_KEY "X"',
    'hmac.new(b"X", message)',
    "vault login X",
    "echo X | docker login --password-stdin",
    '<setting name="token">X</setting>',
    "secrets:\n+  db: X\n+  other: X",
    "credentials:\n  - a:\n      b: X",
]

FORMS = [
    *("AKIA" + "Z7Q2" * 4, "ASIA" + "Z7Q2" * 4, "AIza" + "Sy7b" * 9, "ya29." + X, "GOCSPX-" + X + X),
    *(
        "ghp_" + X * 2,
        "gho_" + X * 2,
        "ghs_" + X * 2,
        "github_pat_" + X * 3,
        "glpat-" + X + "abcd",
        "gldt-" + X + "abcd",
    ),
    *("hf_" + X * 2, "sk-" + X * 2, "sk-proj-" + X * 2, "sk-ant-api03-" + X * 2, "gsk_" + X * 2, "nvapi-" + X * 2),
    *("xoxb-123-456-" + X, "xoxp-1-2-" + X, "xapp-1-A1-2-" + X, "sk_live_" + X, "rk_live_" + X, "whsec_" + X),
    *("npm_" + X * 2, "pypi-" + X, "pypi-AgEIcHlwaS5vcmc" + X, "dckr_pat_" + X, "rubygems_" + HEX, "r8_" + X * 2),
    *("SG." + X + "abcdef." + X * 2, "SK" + HEX, "key-" + HEX, HEX + "-us12", "123456789:" + X * 2 + "abc"),
    *("M" + X + "abcdefgh.abcdef." + X * 2, "dapi" + HEX, "dp.pt." + X * 2, "hvs." + X * 2, "dop_v1_" + HEX * 2),
    *(
        "lin_api_" + X * 2,
        "ntn_" + X * 2,
        "shpat_" + HEX,
        "glsa_" + X * 2,
        "sntrys_" + X * 2,
        "PMAK-" + HEX + "-" + HEX,
    ),
    *("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0." + X, "eyJhcGlfYWRkcmVzcyI6Imh0dHBz" + X, "LTAI" + X, "tskey-auth-" + X),
    *("abc8Q~" + X * 2 + "abcd", X * 5 + "abcdef==", "AGE-SECRET-KEY-1" + "QPZR" * 10, "local-" + HEX + "01234567"),
    *(
        "figd_" + X * 2,
        "sbp_" + HEX + "abcdef01",
        "EAAC" + X * 4,
        "ATATT3" + X * 2,
        "lsv2_pt_" + X * 2,
        "pcsk_" + X * 2,
    ),
    "-----BEGIN OPENSSH PRIVATE KEY-----\n" + X + "\n-----END OPENSSH PRIVATE KEY-----",
    "-----BEGIN PGP PRIVATE KEY BLOCK-----\n" + X,
    "-----BEGIN PRIVATE KEY-----\\n" + X + "\\n-----END PRIVATE KEY-----\\n",
    "MIIEvQIBADANBgkqhkiG9w0BAQEFAASC" + X * 3,
    *("ak-" + X + "abc123", "as-" + X + "abc123", "pa-" + X * 3, "sk_" + HEX + "01234567", "tvly-" + X * 2),
    *("pnb_" + X * 3, "SCW" + "Z7Q2" * 4 + "A", "sdk-0f1e2d3c-4b5a-4978-8796-a5b4c3d2e1f0"),
]

HARMLESS_ARGUMENTS = [
    *("--num-tokens 512", "--max-tokens 64", "--max_new_tokens=5", "--tokenizer gpt2", "--tokenizer-name=bert"),
    *("--key-dim=64", "--num-key-value-heads 8", "--monkey see", "--keyboard us", "--keypoints 17", "--author me"),
    *(
        "-p 8080",
        "-p 0.5",
        "-p config.yaml",
        "-p ./data",
        "--pad-token <pad>",
        "--eos_token=</s>",
        "--token-dropout 0.1",
    ),
    *("--forward-pass twice", "--passes 3", "--pin-memory yes", "--session-length 20", "--use-auth-token true"),
    *(
        "--sig-level 0.05",
        "--bypass layer4",
        "--compass north",
        "--keep-key-order",
        "--sort-key loss",
        "--metric-key acc",
    ),
    *(
        "--out runs/2026-11-19-1423-train",
        "--resume 3f786850e387550fdab836ed7e6dc881de23001b",
        "--data /data/keys/a.csv",
    ),
    *("--url https://host/x?page=2&sort=asc", "--remote git@github.com:org/repo.git", "--master 10.0.0.1:29500"),
    *(
        "--authors a,b",
        "--per-token-loss",
        "model.tokenizer_name=gpt2",
        "--tokens-per-batch 4096",
        "--patch-tokens 196",
    ),
    *(
        "--mask-token [MASK]",
        "--key-padding-mask on",
        "--image https://host/@user/x.png",
        "--docker img:1.0@sha256:abc",
    ),
    *("--secretary z", "--pat-len 4", "--session-based yes", "--primary-key id", "--passband 3", "--signal loss"),
    *("--pattern abc", "--siglip yes", "--text-key caption", "--monitor-key val_loss", "--pass-rate 0.5", "--keep 3"),
    *("--token-file tokens.bin", "--password-dataset rockyou.txt", "--pat 3", "--bearer-angle 30", "--pad-key pad"),
    *("--exp pa-resnet50-imagenet-cosine-bs256-wd1e4-lr0.1", "--exp as-multilingual-bert-large", "--token_dim=512"),
    *("--pass-through", "--session-length 30", "--mfa-beam 10", "--pin-memory on"),
    *("--lr 3e-4", "--seed 1234567890123", "--gres gpu:8", "--time 12:30:00", "--name sweep-7f3a9c21-b64"),
]

HARMLESS_TEXTS = [
    "tokens = tokenizer(text, return_tensors='pt')",
    "token = self.token",
    "key = 3",
    "def attention(query, key, value, key_padding_mask=None):",
    "batch['key'] = batch['query']",
    "keys: list[str] = []",
    "metric = log(key='val_loss')",
    "('query', 'key', 'value')",
    "sorted(x, key=len)",
    "max(d, key=d.get)",
    "session = requests.Session()",
    "password = getpass.getpass()",
    "api_key = os.environ['API_KEY']",
    "login(token=token)",
    "password=password, user=user",
    "token = '<pad>'",
    "class_token: torch.Tensor",
    "self.cls_token = nn.Parameter(torch.zeros(1, 1, dim))",
    "layers.0.self_attn.k_proj.weight",
    "transformer.key.weight has 64 elements",
    "KeyError: 'loss'",
    "RuntimeError: mat1 and mat2 shapes cannot be multiplied (64x10 and 12x5)",
    "Signature: (x: Tensor, y: Tensor) -> Tensor",
    "Unexpected key(s) in state_dict: 'fc.weight', 'fc.bias'.",
    'Missing key(s) in state_dict: "key.weight"',
    "commit 3f786850e387550fdab836ed7e6dc881de23001b",
    "index 3f78685..0e38755 100644",
    "sha256 " + HEX * 2,
    "ValueError: Expected a token of 512 dimensions",
    "pass the --token option to log in",
    "num_tokens=512, key_dim=64, vocab=50257",
    "tokens/s: 12345",
    "step 12: loss=0.5 token_accuracy=0.75",
    "see https://pytorch.org/docs/stable/generated/torch.nn.Embedding.html#torch.nn.Embedding",
    "https://github.com/pytorch/pytorch/issues/12345?tab=comments",
    "x[:, i:j] @ w",
    "@torch.no_grad()",
    "for key, value in kwargs.items():",
    "except KeyError: pass",
    "else: pass",
    "if not key: continue",
    'File "/home/me/keys/train.py", line 3, in forward',
    "basic block of the network",
    "Bearer tokens are sent in a header",
    "author = 'me'",
    "monkeypatch.setattr(x, 'key', 1)",
    "the password is asked for on the terminal",
    "learning rate 0.001 with key 'lr'",
    "torch.manual_seed(0)",
    "tokenizer_config.json: 1.2kB",
    "each key is hashed",
    "the token embedding of TransformerEncoderLayer",
    "a secret of good training: warm-up",
    "auth=(user, password)",
    "KeyError: layers12",
    'password = getpass.getpass("Password: ")',
    'password = input("Password: ")',
    'api_key = read("api_key")',
    'api_key = config.get("wandb", "api_key")',
    'if token != "</s>":',
    "hmac = 1",
    "secret_len = 5",
    "sorted(d, key=lambda k: d[k])",
    "uuid 7f3a9c21-1b2c-4d5e-8f90-abcdef012345",
    "tokens:\n  - a: 1\n  - b: 2",
]


def _hidden(text: str) -> str:
    return text.replace("X-", "\0").replace("X", X).replace("\0", "X-")


@pytest.mark.parametrize("words", ARGUMENTS)
def test_no_secret_of_a_command_line_stays(words: str) -> None:
    argv = shlex.split(_hidden(words))
    clean = scrub_argv(["train.py", *argv, "--lr", "0.1"])
    assert X not in " ".join(clean) and clean[-2:] == ["--lr", "0.1"]
    assert X not in " ".join(scrub(["train.py", *argv]))


@pytest.mark.parametrize("text", TEXTS)
def test_no_secret_of_a_text_stays(text: str) -> None:
    clean = scrub_text(f"+before = 1\n+{_hidden(text)}\n+after = 2\n")
    assert X not in clean and "before = 1" in clean and "after = 2" in clean
    assert scrub_text(clean) == clean


@pytest.mark.parametrize(
    "text",
    [
        "password:\n  X",
        "a\nmachine h login u\npassword X\n",
        "- name: HF_TOKEN\n  value: X",
        "the password is X",
        "ENV HF_TOKEN X",
    ],
)
def test_no_secret_stays_in_the_repr_of_a_text(text: str) -> None:
    for around in ({"e": _hidden(text)}, [_hidden(text)], "a\n" + _hidden(text)):
        clean = scrub_text(repr(around))
        assert X not in clean and clean.count(r"\n") == repr(around).count(r"\n")


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form[:12])
def test_no_key_of_a_known_form_stays(form: str) -> None:
    for around in ("{}", "x = '{}'", "failed ({}), again", "a/{}/b", "name_{}.txt"):
        clean = scrub_text(around.format(form))
        assert form not in clean and X not in clean


@pytest.mark.parametrize("words", HARMLESS_ARGUMENTS)
def test_harmless_arguments_stay(words: str) -> None:
    argv = words.split()
    assert scrub_argv(argv) == argv


@pytest.mark.parametrize("text", HARMLESS_TEXTS)
def test_harmless_texts_stay(text: str) -> None:
    assert scrub_text(text) == text
    assert scrub_text(f"+a = 1\n+    {text}\n+b = 2\n") == f"+a = 1\n+    {text}\n+b = 2\n"


def test_values_go_by_their_names_in_mappings() -> None:
    given = {"lr": 0.1, "api_key": X, "nested": [{"db_password": 12345}], "key": "loss", "num_tokens": 5, "token": X}
    clean = scrub(given)
    assert X not in str(clean) and "12345" not in str(clean)
    assert clean["lr"] == 0.1 and clean["key"] == "loss" and clean["num_tokens"] == 5


def test_digests_of_files_stay_under_their_paths() -> None:
    given = {"src/secret_santa.py": HEX * 2, "/data/keys/token.py": HEX * 2}
    assert scrub(given) == given
