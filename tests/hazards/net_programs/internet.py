"""A small internet of its own for one command: `internet.py WORLD -- COMMAND...`, as root of a new network and mount
namespace (`unshare -n -m`).

WORLD is JSON: `zone`, names and their addresses, or a list of such lists for one answer after the other; `listen`, the
[address, port] of servers, which answer each connection with their address; `files`, the folder of those at port 443,
and their `certificate`, while those at port 3128 are proxies; `hosts`, more lines of /etc/hosts; `resolver`, what is in
/etc/resolv.conf, or "none" where it is not there; `log`, a file: what was asked, who was connected, and where proxies
led, a line each. Public addresses are another machine's in there: one more network namespace at the other end of a
cable, behind a gateway; those in `there` are on the cable itself, and those in `here` and all others this machine's.
The resolver, at 127.0.0.1 or at 127.0.0.53 where the file names that, has no answer to names with `silent.` in front.
"""

from __future__ import annotations

import contextlib
import ctypes
import http.server
import ipaddress
import json
import os
import select
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading

HTTPS, PROXY = 443, 3128


def dns(world: dict[str, object], note) -> None:
    """Answer A and AAAA by UDP."""
    zone: dict[str, list[object]] = world["zone"]  # type: ignore[assignment]
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind(("127.0.0.53" if "127.0.0.53" in str(world["resolver"]) else "127.0.0.1", 53))

    def serve() -> None:
        turns: dict[str, int] = {}
        while True:
            asked, peer = server.recvfrom(4096)
            labels, at = [], 12
            while asked[at]:
                labels.append(asked[at + 1 : at + 1 + asked[at]].decode())
                at += 1 + asked[at]
            name, kind = ".".join(labels).lower(), int.from_bytes(asked[at + 1 : at + 3], "big")
            note(f"asked {name}")
            known = zone.get(name)
            if name.startswith("silent."):
                continue
            if known and isinstance(known[0], list):
                turn = turns.setdefault(name, 0)
                turns[name] += kind == 28  # both families are asked for at once
                known = known[min(turn, len(known) - 1)]
            family = {1: socket.AF_INET, 28: socket.AF_INET6}.get(kind)
            records = [
                socket.inet_pton(family, each) for each in known or () if family and (":" in each) == (kind == 28)
            ]
            head = asked[:2] + (b"\x85\x80" if known else b"\x85\x83") + b"\0\1" + len(records).to_bytes(2, "big")
            body = asked[12 : at + 5]
            for raw in records:
                body += b"\xc0\x0c" + asked[at + 1 : at + 5] + bytes(4) + len(raw).to_bytes(2, "big") + raw
            server.sendto(head + bytes(4) + body, peer)

    threading.Thread(target=serve, daemon=True).start()


class Files(http.server.SimpleHTTPRequestHandler):
    """Those of a folder; `/to/HOST/...` is found at https://HOST/... instead."""

    def do_GET(self) -> None:
        if self.path.startswith("/to/"):
            self.send_response(302)
            self.send_header("Location", f"https://{self.path[4:]}")
            self.end_headers()
        else:
            super().do_GET()

    def log_message(self, *words: object) -> None:
        """Nothing."""


def serve_files(world: dict[str, object], connection: socket.socket) -> None:
    """By HTTPS."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(str(world["certificate"]))
    with contextlib.suppress(OSError), context.wrap_socket(connection, server_side=True) as secured:
        Files(secured, ("", 0), None, directory=str(world["files"]))  # type: ignore[arg-type]
        secured.unwrap()


def pass_on(world: dict[str, object], connection: socket.socket, note) -> None:
    """As a proxy does, to where the zone says."""
    zone: dict[str, list[str]] = world["zone"]  # type: ignore[assignment]
    asked = connection.recv(65536).split()[1].decode()
    note(f"proxied {asked}")
    name, _, port = asked.rpartition(":")
    with socket.create_connection((zone[name][0], int(port))) as other:
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        ends = {connection: other, other: connection}
        while True:
            for end in select.select(ends, [], [])[0]:
                data = end.recv(65536)
                if not data:
                    return
                ends[end].sendall(data)


def listen(address: str, port: int, world: dict[str, object], note) -> None:
    """Answer every connection as an HTTP server does, at port 443 as one with files, at port 3128 as a proxy."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    server = socket.create_server((address, port), family=family)

    def serve() -> None:
        while True:
            connection, _ = server.accept()
            note(f"connected {address} {port}")
            threading.Thread(target=reply, args=(connection,), daemon=True).start()

    def reply(connection: socket.socket) -> None:
        with connection, contextlib.suppress(ConnectionError):
            if port == HTTPS:
                serve_files(world, connection)
            elif port == PROXY:
                pass_on(world, connection, note)
            else:
                connection.recv(65536)
                body = f"from {address}\n".encode()
                connection.sendall(b"HTTP/1.0 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))

    threading.Thread(target=serve, daemon=True).start()


def run(words: str) -> None:
    subprocess.run(words.split(), check=True)


def quiet() -> None:
    """No address waits for others to object. The files are those of the namespace of this thread."""
    with open("/proc/sys/net/ipv6/conf/default/accept_dad", "w") as setting:
        setting.write("0")


def far_away(listening: list[tuple[str, int]], world: dict[str, object], note) -> None:
    """Servers of another machine: a thread's namespace of its own."""
    thread: list[int] = []
    apart, cabled = threading.Event(), threading.Event()
    served = threading.Event()

    def serve() -> None:
        if ctypes.CDLL(None, use_errno=True).unshare(0x40000000):  # CLONE_NEWNET
            raise OSError(ctypes.get_errno(), "unshare")
        quiet()
        thread.append(threading.get_native_id())
        apart.set()
        cabled.wait()
        for address in sorted({address for address, _ in listening}):
            run(f"ip addr add {address} dev there {'nodad' if ':' in address else ''}")
        run("ip link set lo up")  # by which proxies reach their neighbours
        run("ip addr add 198.51.100.2 dev there")
        run("ip addr add 2001:db8::2 dev there nodad")
        run("ip link set there up")
        run("ip route add 198.51.100.1 dev there")
        run("ip -6 route add 2001:db8::1 dev there")
        for address, port in listening:
            listen(address, port, world, note)
        served.set()

    threading.Thread(target=serve, daemon=True).start()
    apart.wait()
    quiet()
    run(f"ip link add here type veth peer name there netns /proc/{os.getpid()}/task/{thread[0]}/ns/net")
    run("ip addr add 198.51.100.1 dev here")
    run("ip addr add 2001:db8::1 dev here nodad")
    run("ip link set here up")
    for address in sorted({address for address, _ in listening}):
        gateway = "2001:db8::2" if ":" in address else "198.51.100.2"
        via = "" if address in world["there"] else f"via {gateway} onlink"
        run(f"ip {'-6' if ':' in address else ''} route add {address} {via} dev here")
    cabled.set()
    served.wait()


def main() -> int:
    world = json.loads(sys.argv[1])
    log = os.open(world["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def note(line: str) -> None:
        os.write(log, f"{line}\n".encode())

    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    far = [
        (a, port)
        for a, port in world["listen"]
        if a in world["there"] or (ipaddress.ip_address(a).is_global and a not in world["here"])
    ]
    here = {address for address, _ in world["listen"]} - {address for address, _ in far} | set(world["here"])
    for address in sorted(here - {"127.0.0.1", "::1"}):
        subprocess.run(["ip", "addr", "add", address, "dev", "lo", *(["nodad"] if ":" in address else [])], check=True)
    with tempfile.NamedTemporaryFile("w") as conf, tempfile.NamedTemporaryFile("w") as hosts:
        if world["resolver"] == "none":
            folder = tempfile.mkdtemp()
            run(f"mount -t tmpfs none {folder}")
            run(f"cp -a /etc/. {folder}")
            os.unlink(f"{folder}/resolv.conf")
            run(f"mount --move {folder} /etc")
            os.rmdir(folder)
        else:
            conf.write(world["resolver"])
            conf.flush()
            os.chmod(conf.name, 0o644)
            subprocess.run(["mount", "--bind", conf.name, "/etc/resolv.conf"], check=True)
        if world["hosts"]:
            with open("/etc/hosts") as real:
                hosts.write(real.read() + world["hosts"])
            hosts.flush()
            os.chmod(hosts.name, 0o644)
            subprocess.run(["mount", "--bind", hosts.name, "/etc/hosts"], check=True)
        dns(world, note)
        for address, port in world["listen"]:
            if address in here:
                listen(address, port, world, note)
        far_away(far, world, note)
        child = subprocess.Popen(sys.argv[3:])
        signal.signal(signal.SIGTERM, lambda *_: child.terminate())
        return child.wait()


sys.exit(main())
