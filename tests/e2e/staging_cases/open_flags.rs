//! Ways to open, allocate and map files.

use crate::support::{Capability, each_driver_and_user, require};

each_driver_and_user! {
    /// A file without a name that is given one. Our file server has none: the error is the one that
    /// makes programs fall back.
    fn temporary_files_without_a_name(stage) {
        require!(stage, Capability::Program("python3"));
        let job = "python3 -c \"
import os, ctypes, errno
libc = ctypes.CDLL(None, use_errno=True)
try:
    d = os.open('.', os.O_TMPFILE | os.O_RDWR, 0o644)
except OSError as e:
    print(errno.errorcode[e.errno])
    raise SystemExit
os.write(d, b'hi\\n')
print(libc.linkat(-100, b'/proc/self/fd/%d' % d, -100, b'tl', 0x400))
never = os.open('.', os.O_TMPFILE | os.O_RDWR, 0o644)
os.write(never, b'lost')\"; cat tl";
        let done = stage.run_with(&[], job).done();
        if stage.is_fuse() {
            assert_eq!(done.out(), "ENOTSUP\n", "EOPNOTSUPP has this name too: {done}");
            assert_eq!(stage.changes().lines(), Vec::<String>::new());
        } else {
            assert_eq!(done.out(), "0\nhi\n", "{done}");
            assert_eq!(stage.changes().lines(), ["added tl"], "what never had a name leaves nothing");
            stage.pvisor(["commit", "--all"]).ok();
            assert_eq!(stage.text("tl"), "hi\n");
        }
    }
}

each_driver_and_user! {
    /// Opened for reading and made by it: lock files.
    fn read_only_and_created(stage) {
        require!(stage, Capability::Program("python3"));
        let both = stage.beside_twin(
            "echo 1 >old",
            "flock lk sh -c 'flock -n lk true || echo busy'; python3 -c \"
import os
os.close(os.open('z', os.O_CREAT, 0))
os.close(os.open('old', os.O_CREAT))
print(os.read(os.open('w', os.O_CREAT | os.O_RDONLY, 0o200), 1))
d = os.open('locked', os.O_CREAT | os.O_RDWR, 0o400)
os.write(d, b'into a file that nobody may write')\"; stat -c '%n %a %s' lk z old w locked",
        );
        both.both_print("busy\nb''\nlk 644 0\nz 0 0\nold 644 2\nw 200 0\nlocked 400 33\n");
        assert_eq!(both.changes.lines(), ["added lk", "added locked", "added w", "added z"]);
        assert_eq!(both.changes.get("z")["mode"]["after"], "100000");
    }
}

each_driver_and_user! {
    /// Flags that change what a write or an open does to a file of the host's.
    fn flags_on_existing_files(stage) {
        require!(stage, Capability::Program("python3"));
        let both = stage.beside_twin(
            "for n in a t x n e; do echo host >$n; done; chmod 444 x; ln -s a l; mkdir d",
            "python3 -c \"
import os, errno
def says(call):
    try:
        return call()
    except OSError as e:
        return errno.errorcode[e.errno]
one, two = (os.open('a', os.O_WRONLY | os.O_APPEND) for _ in range(2))
os.write(one, b'1'); os.write(two, b'2'); os.write(one, b'3')
print(open('a').read())
d = os.open('t', os.O_RDONLY | os.O_TRUNC)
print(os.fstat(d).st_size)
print(says(lambda: os.open('n', os.O_CREAT | os.O_EXCL | os.O_WRONLY)))
print(says(lambda: os.open('l', os.O_WRONLY | os.O_NOFOLLOW)))
print(says(lambda: os.open('d', os.O_WRONLY)), says(lambda: os.open('d', os.O_RDONLY | os.O_CREAT)))
print(says(lambda: os.open('e/', os.O_RDONLY)), says(lambda: os.open('a/b', os.O_RDONLY)))
p = os.open('e', os.O_PATH)
print(says(lambda: os.read(p, 1)), os.fstat(p).st_size)
print(says(lambda: os.open('.', os.O_RDWR)), says(lambda: os.open('', os.O_RDWR)))\"",
        );
        both.both_print(
            "host\n123\n0\nEEXIST\nELOOP\nEISDIR EISDIR\nENOTDIR ENOTDIR\nEBADF 5\nEISDIR ENOENT\n",
        );
        assert_eq!(both.changes.lines(), ["modified a", "modified t"]);
    }
}

each_driver_and_user! {
    /// Space is allocated and given back; a hole is found where one is.
    fn allocation_and_holes(stage) {
        require!(stage, Capability::Program("python3"));
        let both = stage.beside_twin(
            "seq 20000 | head -c 65536 >f; head -c 65536 /dev/zero | tr '\\0' x >g",
            "fallocate -p -o 4096 -l 8192 g && python3 -c \"
import os
d = os.open('g', os.O_RDONLY)
print(os.lseek(d, 0, os.SEEK_HOLE), os.lseek(d, 4096, os.SEEK_DATA))
h = os.open('hole', os.O_RDWR | os.O_CREAT, 0o644)
os.ftruncate(h, 1 << 20)
print(os.lseek(h, 0, os.SEEK_HOLE))
print(os.copy_file_range(os.open('f', os.O_RDONLY), h, 65536, 0, 4096))\"; \
             fallocate -o 65536 -l 65536 g && fallocate -n -l 262144 g && \
             fallocate -z -o 32768 -l 4096 g && stat -c %s g; tr -d x <g | wc -c",
        );
        both.both_print("4096 12288\n0\n65536\n131072\n77824\n");
        assert_eq!(both.changes.lines(), ["added hole", "modified g"]);
    }
}

each_driver_and_user! {
    /// Memory maps: of the host's files, shared and private, and two views of one file.
    fn memory_maps(stage) {
        require!(stage, Capability::Program("python3"));
        let both = stage.beside_twin(
            "head -c 20000 /dev/zero | tr '\\0' a >m; cp m p",
            "python3 -c \"
import mmap, os
d = os.open('m', os.O_RDWR)
one, two = mmap.mmap(d, 20000), mmap.mmap(d, 20000)
one[10000:10003] = b'NEW'
print(bytes(two[9999:10004]))
os.pwrite(d, b'by write', 100)
print(bytes(one[100:108]))
one.flush()
print(open('m', 'rb').read()[9999:10004])
private = mmap.mmap(os.open('p', os.O_RDONLY), 20000, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
private[0:2] = b'no'\"; head -c 2 p",
        );
        both.both_print("b'aNEWa'\nb'by write'\nb'aNEWa'\naa");
        assert_eq!(both.changes.lines(), ["modified m"]);
    }
}

each_driver_and_user! {
    /// Flags of inodes, asked for by programs that then copy.
    fn inode_flags_and_rename_flags(stage) {
        require!(stage, Capability::Program("python3"));
        let both = stage.beside_twin(
            "echo 1 >a; echo 2 >b; mkdir d; echo 3 >d/x; echo 4 >c",
            "python3 -c \"
import ctypes, errno, fcntl, os
libc = ctypes.CDLL(None, use_errno=True)
def rename2(old, new, flags):
    done = libc.renameat2(-100, old.encode(), -100, new.encode(), flags)
    return 'ok' if done == 0 else errno.errorcode[ctypes.get_errno()]
print(rename2('a', 'b', 1), rename2('a', 'new', 1), rename2('b', 'c', 2), rename2('nothing', 'b', 0))
try:
    fcntl.ioctl(os.open('b', os.O_RDONLY), 0x80086601, bytearray(8))
    print('flags')
except OSError as e:
    print(errno.errorcode[e.errno])\"; cat new b c",
        );
        let native = "EEXIST ok ok ENOENT\nflags\n1\n4\n2\n";
        assert_eq!(both.native.out(), native);
        assert_eq!(both.staged.out(), native, "{}", both.staged);
    }
}

each_driver_and_user! {
    /// A program that runs is neither written to nor cut, whatever the flags; afterwards it is. The
    /// kernel's overlay copies up (and cuts) before it refuses, if the open is one for reading.
    fn a_program_that_runs(stage) {
        require!(stage, Capability::Program("python3"));
        let job = "cp s t; python3 -c \"
import os, errno, subprocess
def says(path, flags):
    try:
        os.close(os.open(path, flags))
        return 'ok'
    except OSError as e:
        return errno.errorcode[e.errno]
size = os.stat('s').st_size
running = [subprocess.Popen(['./s', '600']), subprocess.Popen(['./t', '600'])]
for path in 's', 't':
    for flags in os.O_WRONLY | os.O_TRUNC, os.O_RDWR, os.O_RDONLY | os.O_TRUNC:
        if path == 't' or CUTS or flags != os.O_RDONLY | os.O_TRUNC:
            print(path, says(path, flags), os.stat(path).st_size == size)
for child in running:
    child.kill()
    child.wait()
print(says('s', os.O_RDWR), says('t', os.O_RDWR))
\"";
        let job = job.replace("CUTS", if stage.is_fuse() { "True" } else { "False" });
        let both = stage.beside_twin("cp /bin/sleep s", &job);
        let host = if stage.is_fuse() { 3 } else { 2 };
        both.both_print(&format!(
            "{}{}ok ok\n",
            "s ETXTBSY True\n".repeat(host),
            "t ETXTBSY True\n".repeat(3)
        ));
        assert_eq!(both.changes.lines(), ["added t"]);
        if !stage.is_fuse() {
            let cut = "./s 600 & python3 -c \"import os; os.open('s', os.O_RDONLY | os.O_TRUNC)\" \
                       2>&1 | tail -n 1; stat -c %s s; kill $!";
            let done = stage.run_with(&[], cut).done();
            assert_eq!(done.out(), "OSError: [Errno 26] Text file busy: 's'\n0\n", "{done}");
        }
    }
}
