"""The operations of the `tools` bench: `prepare DIR full|small` makes their inputs, `task` does them
in the current directory and prints the milliseconds of each. Standard library only."""
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time

AMOUNTS = {"full": dict(files=2048, dirs=32, blob=64 << 20, writes=256, modules=64, packages=32),
           "small": dict(files=64, dirs=4, blob=1 << 20, writes=8, modules=4, packages=2)}
PIECE = b"sixty-four bytes of text, written again and again until it fits\n" * 1024


def put(path, content):
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with open(path, "wb") as file:
        file.write(content if isinstance(content, bytes) else content.encode())


def call(argv, cwd=None):
    here = os.getcwd()
    env = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "HOME": f"{here}/.home",
           "TMPDIR": f"{here}/.tmp", "CARGO_HOME": f"{here}/.cargo-home",
           "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1",
           "GIT_AUTHOR_NAME": "b", "GIT_AUTHOR_EMAIL": "b@invalid",
           "GIT_COMMITTER_NAME": "b", "GIT_COMMITTER_EMAIL": "b@invalid"}
    for name in (".home", ".tmp"):
        os.makedirs(name, exist_ok=True)
    return subprocess.run(argv, cwd=cwd, env=env, check=True, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE).stdout.decode()


def prepare(root, amount):
    n = AMOUNTS[amount]
    os.makedirs(root)
    os.chdir(root)
    put("amounts.json", json.dumps(n))
    for i in range(n["files"]):
        put(f"tree/{i % n['dirs']}/{i}.txt", f"line of file {i}, to be found\n" + "-" * 990 + "\n")
    if shutil.which("git"):
        for argv in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "all"], ["gc", "-q"]):
            call(["git", *argv], "tree")
    put("blob", hashlib.shake_256(b"blob").digest(n["blob"]))
    put("crate/Cargo.toml", '[package]\nname = "sum"\nversion = "0.0.1"\nedition = "2021"\n')
    for i in range(n["modules"]):
        put(f"crate/src/part{i}.rs", f"pub const PART: u64 = {i};\n")
    parts = range(n["modules"])
    put("crate/src/main.rs", "".join(f"mod part{i};\n" for i in parts) + "fn main() {\n    print!(\"{}\", "
        + " + ".join(f"part{i}::PART" for i in parts) + ");\n}\n")
    for i in range(n["packages"]):
        put(f"web/packages/lib{i}/package.json", json.dumps({"name": f"lib{i}", "version": "0.0.1"}))
        for j in range(16):
            put(f"web/packages/lib{i}/{j}.js", f"exports.number = {i * j}\n")
    put("web/package.json", json.dumps({"name": "web", "version": "0.0.1", "dependencies": {
        f"lib{i}": f"file:packages/lib{i}" for i in range(n["packages"])}}))


def traverse(n):
    count = 0
    for folder, dirs, names in os.walk("tree"):
        dirs[:] = [d for d in dirs if d != ".git"]
        count += sum(1 for name in names if os.lstat(os.path.join(folder, name)).st_size > 900)
    assert count == n["files"], count


def read(n):
    with open("blob", "rb") as file:
        hashlib.file_digest(file, "sha256") if hasattr(hashlib, "file_digest") else \
            hashlib.sha256(file.read())


def write(n):
    os.mkdir("written")
    for i in range(n["writes"]):
        with open(f"written/{i}", "wb", buffering=0) as file:
            file.write(PIECE)


def git(n):
    assert call(["git", "status", "--porcelain"], "tree") == ""


def rg(n):
    assert len(call(["rg", "--files-with-matches", "to be found", "tree"]).splitlines()) == n["files"]


def cargo(n):
    call(["cargo", "build", "--quiet", "--release", "--offline"], "crate")
    assert call(["crate/target/release/sum"]) == str(sum(range(n["modules"])))


def npm(n):
    call(["npm", "install", "--silent", "--offline", "--no-audit", "--no-fund", "--ignore-scripts",
          "--no-package-lock"], "web")
    assert os.path.exists(f"web/node_modules/lib{n['packages'] - 1}/15.js")


def task():
    with open("amounts.json") as file:
        n = json.load(file)
    times = {}
    for op in (traverse, read, write, git, rg, cargo, npm):
        if op in (git, rg, cargo, npm) and not shutil.which(op.__name__):
            continue
        begun = time.perf_counter()
        op(n)
        times[op.__name__] = (time.perf_counter() - begun) * 1000
    print(json.dumps(times))


if sys.argv[1] == "prepare":
    prepare(sys.argv[2], sys.argv[3])
else:
    task()
