"""A file of each format, with the word `canary` in every place that a view must hide, also where a careless edit could
bring it to light: words that could be names, in values and comments of several lines.
"""

from __future__ import annotations

SAMPLES: dict[str, bytes] = {
    ".env": b"""\
# canary_comment=1
HOST=canary.example.org  # canary
export TOKEN="canary_a
canary_b=2
export canary_c='x'
"
QUOTED='canary "canary_d=3'
EMPTY=
canary line
ghp_canarycanary1234567890abcdef=5
LAST=canary_e""",
    "app.ini": b"""\
; canary
[server]
host = canary_host
  canary_more = 1
password: canary_password

[ghp_canarycanary1234567890abcdef]
user = canary_user
""",
    ".npmrc": b"registry=https://canary.example.org/\n//registry.npmjs.org/:_authToken=npm_canary\n"
    b"; canary\nalways-auth=true\n",
    ".aws/credentials": b"""\
[default]
aws_access_key_id = AKIAcanary
aws_secret_access_key = canary/canary+canary=
[profile work]
aws_session_token = canary==
""",
    "config.toml": b"""\
title = "canary" # canary
[database]
text = \"\"\"
canary_a = 1
[canary_b]
\"\"\"
ports = [ "canary", # canary = 2
  'canary_c', ]
"odd key" = "canary"
point = { x = 1, canary = 2 }
[[servers]]
when = 1979-05-27T07:32:00Z
""",
    "app.json": b"""\
{"name": "canary", "port": 8080,
  "database": {"password": "canary \\" canary\\n", "hosts": ["canary_a", {"tls": true}], "nothing": null},
  "https://canary": "canary", "last": [["canary"]]}
""",
    ".kube/config": b"""\
apiVersion: v1  # canary
clusters:
- cluster:
    certificate-authority-data: canary
    server: https://canary.example.org:6443
  name: canary_a
users:
- name: "canary_b
    canary_c: x"
  user:
    token: |
      canary_d: y
      canary_e: z
    exec: {command: canary, args: [canary,
      canary_f: 1]}
? canary_g
: canary_h
""",
    "passwords.csv": b"""\
name,url,username,password
canary,https://canary,user,"canary, ""x""
password"
token,canary_b,name,canary
""",
    ".netrc": b"""\
# canary
machine canary.example.org login canary_user password "canary machine x"
default login anonymous
password canary
macdef canary
machine canary

machine last login canary
""",
    "id_rsa": b"""\
canary
-----BEGIN RSA PRIVATE KEY-----
Proc-Type: 4,canary
canary=
-----END RSA PRIVATE KEY-----
-----BEGIN CERTIFICATE-----
canary
-----END CERTIFICATE-----
""",
    ".git-credentials": b"https://canary:canary@github.com\nhttps://canary.example.org\n# canary\nhttps://canary@gitlab.com/\n",
    ".bash_history": b"export TOKEN=canary\ncurl -u canary:canary https://canary\n",
    "data.sqlite": b"SQLite format 3\0\x10\0canary\0\xff",
}
SECRET = b"canary"
