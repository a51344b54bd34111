"""Commands and calls that take a secret at a certain place rather than under a name. Each pattern has a `head`, which
stays, and a `value`, which goes."""

from __future__ import annotations

import re

LOGIN_COMMAND = re.compile(
    r"(?P<head>\b(?:wandb|huggingface-cli|hf|comet|docker|npm|neptune|kaggle|vault)\s+(?:auth\s+)?login\s+(?:--?[\w-]+\s+)*)"
    r"(?P<value>(?!-)[\w.-]{12,})"
)
"""`wandb login KEY`: a key of W&B is 40 hexadecimal digits like a commit, so only the command tells."""
PASSWORD_OPTION = re.compile(
    r"(?P<head>\b(?:mysql\w*|mariadb|sshpass|redis-cli|mongo\w*|(?:docker|podman|helm registry|az|oc)\s+login)\b"
    r"[^\n|;]{0,300}?\s-(?:pw|p|P|a)\s*[\"']?)(?P<value>(?![\s\"'-])[^\s\"']+)"
)
"""Programs that take a password after -p."""
LOGIN_CALL = re.compile(
    r"""(?P<head>\b(?:auth[^\S\n]*=[^\S\n]*\(|\w*Auth\(|login\(|jwt\.(?:en|de)code\()
          [^\S\n]*[^\s,()]{1,100},[^\S\n]*b?(?P<quote>["']))
        (?P<value>[^"'\n]+)(?=(?P=quote))""",
    re.VERBOSE,
)
"""auth=("user", "x"), login("user", "x")."""
CLIENT_CALL = re.compile(
    r"""(?P<head>\b(?:Fernet|Experiment|OpenAI|Anthropic|HfApi|InferenceClient|\w*Client|Github|Gitlab|Bot|login)\(
        [^\S\n]*b?(?P<quote>["']))(?P<value>[\w.+/=-]{12,})(?=(?P=quote))""",
    re.VERBOSE,
)
"""Experiment("x"), as clients take a key for their first argument."""
CURL_USER = re.compile(
    r"(?P<head>(?<![\w-])(?:-u|--user|--login|--userpwd|--proxy-user)[\s=\"',]+[\w.@+-]*:)(?P<value>[^\s\"']+)"
)
PIPED_LOGIN = re.compile(
    r"(?P<head>\b(?:echo|printf)[^\S\n]+(?:-\w[^\S\n]+)?[\"']?)(?P<value>(?![$-])[^\s\"'|]+)"
    r"(?=[\"']?[^\S\n]*\|[^\n|]{0,200}(?:--password-stdin|login\b))"
)
"""echo X | docker login --password-stdin"""
SIGNING_CALL = re.compile(
    r"""(?P<head>\bhmac\.(?:new|digest)\([^\S\n]*b?(?P<quote>["']))(?P<value>[^"'\n]+)(?=(?P=quote))"""
)
