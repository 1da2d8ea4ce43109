"""The variables that are kept from a program since they hold a credential; and the many that are not one."""
# ruff: noqa: E501 - tables

from __future__ import annotations

import pytest

from pincer_trace import credentials

RANDOM = "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8s9T0"  # forty characters; each token below is made of it
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.c2lnbmF0dXJl"
PEM = "-----BEGIN OPENSSH " + "PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjE\n"

BY_NAME = {
    "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "AWS_SESSION_TOKEN": "x", "GITHUB_TOKEN": "x",
    "GH_TOKEN": "x", "NPM_TOKEN": "x", "OPENAI_API_KEY": "x", "ANTHROPIC_API_KEY": "x", "CLAUDE_CODE_OAUTH_TOKEN": "x",
    "AZURE_CLIENT_SECRET": "x", "DJANGO_SECRET_KEY": "x", "SECRET_KEY_BASE": "x", "RAILS_MASTER_KEY": "x",
    "PGPASSWORD": "x", "MYSQL_PWD": "x", "DB_PASS": "x", "SSHPASS": "x", "SMTP_PASSWORD": "12345678",
    "BORG_PASSPHRASE": "x", "PULUMI_CONFIG_PASSPHRASE": "x", "AZURE_DEVOPS_EXT_PAT": "x", "CI_JOB_TOKEN": "x",
    "ACTIONS_ID_TOKEN_REQUEST_TOKEN": "x", "TWINE_PASSWORD": "x", "POETRY_PYPI_TOKEN_PRIVATE": "x", "HF_TOKEN": "x",
    "CARGO_REGISTRIES_MINE_TOKEN": "x", "npm_config__authToken": "x", "npm_config__auth": "dTpw",
    "npm_config_//registry.npmjs.org/:_authToken": "x", "AWS_BEARER_TOKEN_BEDROCK": "x", "GOOGLE_CREDENTIALS_JSON": "{}",
    "api_key": "x", "token": "x", "PASSWORD": "x", "SUPABASE_SERVICE_ROLE_KEY": "x", "DD_APP_KEY": "x", "TOKEN_2": "x",
    "NEXTAUTH_SECRET": "x", "SECRET_VALUE": "/not/a/file/that/is/there", "API_KEYS": "a,b", "COMPOSER_AUTH": "{}",
    "DB_PASSWORD2": "x", "TOKEN1": "x", "AWS_SECRET_ACCESS_KEY_2": "x", "API_KEY10": "x", "DB_PASS3": "x", "token01": "x",
    "SECRET_KEY_V2": "x", "API_TOKEN_V10": "x", "KAGGLE_KEY2": "x", "TOKEN_BASE64": "x", "TOKEN2_PROD": "x",
}  # fmt: skip
BY_SHAPE = [
    f"ghp_{RANDOM[:36]}", f"github_pat_{RANDOM}", f"glpat-{RANDOM[:20]}", f"sk-ant-api03-{RANDOM}", f"sk-proj-{RANDOM}",
    f"sk_live_{RANDOM[:24]}", f"xoxb-1234-5678-{RANDOM[:24]}", "AKIA" + RANDOM[:16].upper(), f"npm_{RANDOM[:36]}",
    f"pypi-AgEIcHlwaS5vcmc{RANDOM}", f"hf_{RANDOM[:34]}", f"AIza{RANDOM[:35]}", f"SG.{RANDOM[:22]}.{RANDOM}", JWT, PEM,
    f"Bearer {RANDOM}", f"authorization=Basic {RANDOM}", f"id,ghp_{RANDOM[:36]};more", f'{{"token": "ghp_{RANDOM[:36]}"}}',
    "postgres://app:hunter2@db.example.net/app", "redis://:hunter2@10.0.0.7:6379/0", "https://u:p%40ss@proxy:3128",
    f"https://ghp_{RANDOM[:36]}@github.com/o/r.git", "amqp://h1,amqp://u:p@h2", "-Dx=1 http://u:p@h",
    "https://hooks.slack.com/services/T0/B0/xyz", "Server=db;User Id=app;Password=hunter2;",
    "DefaultEndpointsProtocol=https;AccountName=a;AccountKey=abc==;", f"AGE-SECRET-KEY-1{RANDOM.upper()}",
]  # fmt: skip
HONEST = {
    "PATH": "/usr/local/bin:/usr/bin", "HOME": "/root", "PWD": "/work", "OLDPWD": "/", "INIT_CWD": "/work",
    "BUILD_PWD": "/usr", "TERM": "xterm-256color", "COLORTERM": "truecolor", "KEYBOARD": "us", "XKB_DEFAULT_LAYOUT": "de",
    "SSH_AUTH_SOCK": "/tmp/ssh-x/agent.1", "SSH_ASKPASS": "/usr/bin/ssh-askpass", "GIT_ASKPASS": "/usr/bin/true",
    "GPG_TTY": "/dev/pts/3", "GPG_KEY": "A035C8C19219BA821ECEA86B64E628F8D684696D", "TOKENIZERS_PARALLELISM": "false",
    "MAX_TOKENS": "8192", "CLAUDE_CODE_MAX_OUTPUT_TOKENS": "32000", "MAX_THINKING_TOKENS": "10_000", "TOKEN_LIMIT": "5",
    "USE_PASSWORD": "false", "REQUIRE_TOKEN": "1", "SUDO_ASKPASS": "/bin/true", "PASSWORD_STORE_DIR": "/home/u/.pass",
    "PGPASSFILE": "/home/u/.pgpass", "PGHOST": "/run/postgresql", "AWS_PROFILE": "dev", "AWS_REGION": "eu-west-1",
    "AWS_WEB_IDENTITY_TOKEN_FILE": "/var/run/secrets/token", "GOOGLE_APPLICATION_CREDENTIALS": "/etc/passwd",
    "ACTIONS_ID_TOKEN_REQUEST_URL": "https://run.example.com/x", "GITHUB_SECRET_SOURCE": "Actions", "CI": "true",
    "GITHUB_ACTIONS": "true", "GITHUB_SHA": "1f3870be274f6c49b3e31a0c6728957f1f3870be", "GITHUB_REF": "refs/heads/main",
    "GITHUB_WORKFLOW": "ci", "GITHUB_RUN_ID": "123456789", "CI_COMMIT_SHA": "1f3870be274f6c49b3e31a0c6728957f1f3870be",
    "CI_REGISTRY_USER": "ci", "CI_PROJECT_URL": "https://gitlab.example.net/a/b", "JENKINS_URL": "http://ci:8080/",
    "npm_config_user_agent": "npm/10.2 node/v20", "npm_config_registry": "https://registry.npmjs.org/",
    "npm_config_globalconfig": "/etc/npmrc", "npm_package_name": "tokens", "npm_lifecycle_event": "test",
    "npm_execpath": "/usr/lib/npm-cli.js", "NODE_OPTIONS": "--max-old-space-size=4096", "NODE_AUTH_TOKEN": "${NPM}",
    "LANG": "sk_SK.UTF-8", "LC_ALL": "C", "LS_COLORS": "rs=0:di=01;34:ln=01;36", "PS1": "\\u@\\h:\\w\\$ ",
    "EDITOR": "vi", "PAGER": "less", "LESS": "-R", "DISPLAY": ":0", "XAUTHORITY": "/home/u/.Xauthority",
    "HTTP_PROXY": "http://proxy.example.net:3128", "NO_PROXY": "localhost,.example.net", "ALL_PROXY": "socks5://h:1080",
    "PIP_INDEX_URL": "https://user@pypi.example.net/simple", "DATABASE_URL": "postgres:///app?host=/run/postgresql",
    "DATABASE_URL_2": "postgres://app@db/app", "SENTRY_DSN": "https://1f3870be274f6c49b3e31a0c6728957f@o1.sentry.io/2",
    "URL_TEMPLATE": "https://u:${PASSWORD}@h/", "GIT_URL": "git@github.com:o/r.git", "MAILTO": "a:b@example.net",
    "JAVA_HOME": "/usr/lib/jvm", "JAVA_TOOL_OPTIONS": "-Dfile.encoding=UTF-8", "GOPATH": "/root/go", "CARGO_HOME": "/c",
    "VIRTUAL_ENV": "/w/.venv", "PYTHONPATH": "src", "PYTHONHASHSEED": "0", "CONDA_PREFIX": "/opt/conda",
    "CACHE_KEY": "deps-v3", "PRIMARY_KEY": "id", "SORT_KEY": "name", "PUBLIC_KEY": "ssh-ed25519 AAAAC3", "KEY": "value",
    "NEXT_PUBLIC_SUPABASE_ANON_KEY": JWT, "STRIPE_PUBLISHABLE_KEY": f"pk_live_{RANDOM}", "HOTKEY": "ctrl-a",
    "CARGO_REGISTRY_CREDENTIAL_PROVIDER": "cargo:token", "SECRET_PROVIDER": "vault", "VAULT_ADDR": "https://v:8200",
    "KUBERNETES_PORT_443_TCP_ADDR": "10.0.0.1", "KUBERNETES_SERVICE_HOST": "10.0.0.1", "HOSTNAME": "sk-node-long-name-01",
    "WANDB_MODE": "offline", "BYPASS": "yes", "COMPASS": "north", "FILE_PAT": "*.c", "EMPTY_TOKEN": "", "BLANK_SECRET": " ",
    "OP_TOKEN": "op://vault/item/field", "ANSIBLE_VAULT_PASSWORD_FILE": "/w/.pass", "SSH_CONNECTION": "10.0.0.2 1 10.0.0.1",
    "DBUS_SESSION_BUS_ADDRESS": "unix:path=/run/user/7/bus,guid=1f3870be274f6c49", "INVOCATION_ID": "1f3870be274f6c49b3",
    "TOKEN_FILE": "/run/token", "DOCKER_BUILDKIT": "1", "MACHINE_ID": "1f3870be274f6c49b3e31a0c6728957f", "_": "/bin/env",
    "MAX_TOKENS2": "8192", "KEY2": "value", "CACHE_KEY2": "deps", "SHA256": "x", "PUBLIC_KEY2": "ssh-ed25519 AAAAC3",
    "PASS1": "x", "OAUTH2": "x", "V2": "x", "USE_TOKEN2": "1", "PWD2": "x", "API_KEY2_FILE": "/run/key", "X509": "x",
}  # fmt: skip


@pytest.mark.parametrize("name", BY_NAME)
def test_known_by_name(name: str) -> None:
    assert credentials.is_credential(name.encode(), BY_NAME[name].encode())


@pytest.mark.parametrize("value", BY_SHAPE)
def test_known_by_shape(value: str) -> None:
    assert credentials.is_credential(b"PLAIN", value.encode())


@pytest.mark.parametrize("name", HONEST)
def test_honest_variables_stay(name: str) -> None:
    assert not credentials.is_credential(name.encode(), HONEST[name].encode())


def test_odd_bytes_do_not_matter() -> None:
    for name in (b"", b"=", b"_", b"\xff_TOKEN", b"__", b"1", b"KEY", b"_KEY_"):
        for value in (b"", b"://", b"://@", b"://:@", b"\xff" * 99, b"ey.", b"eyJ..", b"bearer ", b"a;pwd=", b"-----"):
            assert credentials.is_credential(name, value) in (False, value.strip() != b"" and name.endswith(b"TOKEN"))


def test_passed_by_name() -> None:
    passes = credentials.named(["NPM_TOKEN", "AWS_*"])
    assert [passes(name) for name in (b"NPM_TOKEN", b"NPM_TOKEN_2", b"AWS_SESSION_TOKEN", b"AWS", b"")] == [
        True, False, True, False, False,
    ]  # fmt: skip
    assert credentials.named(["*"])(b"\xff") and not credentials.named([])(b"X")
