# Renames of directories, each answer printed: the same text natively and in the sandbox.
import ctypes, errno, os, platform, stat

libc = ctypes.CDLL(None, use_errno=True)
NUMBER = {"x86_64": 316, "aarch64": 276}[platform.machine()]
HERE, NOREPLACE, EXCHANGE = -100, 1, 2
top = os.getcwd()


def mv(old, new, flags=0, old_dir=HERE, new_dir=HERE):
    r = libc.syscall(NUMBER, old_dir, os.fsencode(old), new_dir, os.fsencode(new), flags)
    return "ok" if r == 0 else errno.errorcode[ctypes.get_errno()]


def show(path):
    for name in sorted(os.listdir(path)):
        full = os.path.join(path, name)
        st = os.lstat(full)
        text = [full, oct(st.st_mode)]
        if stat.S_ISREG(st.st_mode):
            text += [st.st_size, st.st_mtime_ns // 1000 if st.st_mtime < 1.6e9 else "now", st.st_nlink]
            if st.st_size < 100:
                text.append(open(full, "rb").read())
        elif stat.S_ISLNK(st.st_mode):
            text.append(os.readlink(full))
        if not stat.S_ISLNK(st.st_mode) and st.st_mode & 0o400:
            text.append([(n, os.getxattr(full, n)) for n in sorted(os.listxattr(full)) if n.startswith("user.")])
        print(*text)
        if stat.S_ISDIR(st.st_mode) and len(name) < 40 and st.st_mode & 0o500 == 0o500:
            show(full)


def case(name, run):
    os.chdir(os.path.join(top, name))
    print("==", name)
    for answer in run():
        print(answer)
    show(".")
    os.chdir(top)


case("new", lambda: [mv("a", "b"), os.path.exists("a")])
case("empty", lambda: [mv("a", "b")])
case("full", lambda: [mv("a", "b")])
case("noreplace", lambda: [mv("a", "b", NOREPLACE)])
case("noreplace2", lambda: [mv("a", "b", NOREPLACE)])
case("exlower", lambda: [mv("a", "b", EXCHANGE)])


def exupper():
    os.mkdir("n")
    open("n/new", "w").write("n")
    return [mv("a", "n", EXCHANGE), mv("n", "missing", EXCHANGE)]


case("exupper", exupper)
case("exfile", lambda: [mv("a", "b", EXCHANGE), mv("a", "b", EXCHANGE), mv("b", "a", EXCHANGE)])
case("self", lambda: [mv("a", "a/s/in"), mv("a/s", "a"), mv("a", "a"), mv("a/.", "b"), mv("a/..", "b"), mv("a/s/..", "b")])
case("over", lambda: [mv("a", "b"), mv("b", "a"), mv("a", "b/x"), mv("a", "no/x"), mv("no", "x"), mv("a", "")])


def readonly():
    # Root's own rights are no rule of a sandbox without capabilities.
    if os.geteuid() == 0:
        return []
    return [mv("a", "to/b"), mv("to/a", "b")]


case("readonly", readonly)
case("slash", lambda: [mv("a/", "b"), mv("b", "c/"), mv("c///", "d//"), mv("./d/", ".//e2/")])


def dirfd():
    here, sub = os.open(".", os.O_RDONLY), os.open("a/s", os.O_PATH)
    return [mv("t", "t2", 0, sub, here), mv("a", "b", 0, here, here), mv("a", "b", 0, 77, here)]


case("dirfd", dirfd)
case("absolute", lambda: [mv(os.path.abspath("a"), os.path.abspath("b")), mv("/" + os.path.abspath("b"), os.path.abspath("./x/../c"))])
case("back", lambda: [mv("a", "b"), mv("b", "a"), mv("a/s", "s"), mv("s", "a/s")])


def chain():
    answers = [mv("a", "b"), mv("b/s", "c"), mv("c/t", "b/t"), mv("b", "d")]
    os.mkdir("a")
    open("a/f", "w").write("another\n")
    return answers + [mv("a", "e")]


case("chain", chain)
case("link", lambda: [mv("through/a", "through/b"), mv("through", "t2"), mv("t2/", "t3")])
case("kinds", lambda: [mv("a", "b")])
case("onself", lambda: [mv("a/s", "../onself/a/s"), mv("a/s", "../onself/a/./z/../s2"), mv("a/e", "./a/e2")])
case("parent", lambda: [mv("a", "to/a"), mv("to/a/s", "s"), mv("to", "a")])
case("deep", lambda: [mv("a", "b")])


def mode():
    os.chmod("a/s", 0o555)
    if os.geteuid() == 0:
        os.chmod("a/s", 0o755)
        return []
    answers = [mv("a/s", "s"), mv("a/s", "a/s2")]
    os.chmod("a/s2", 0o755)
    return answers


case("mode", mode)
case("out", lambda: [mv("a", "/tmp/never-there/a"), mv("a", "/proc/a")])
