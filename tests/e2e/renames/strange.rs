//! Renames while much else goes on, and by programs that try to get something out of it.

use crate::support::{Capability, Tree, each_user, require};

use super::{python, tree};

each_user! {
    fn nothing_written_meanwhile_is_lost(world) {
        require!(world, Capability::Program("python3"));
        world.host_ok("mkdir -p a/s; for i in $(seq 1500); do echo $i >a/s/$i; done");
        let out = python(world, &[], "
import os, threading
stop, made = False, 0
def write():
    global made
    while not stop and made < 6000:
        for place in ('a/s', 'b/s'):
            try:
                with open(f'{place}/new{made}', 'x') as f: f.write('n')
                made += 1
                break
            except FileNotFoundError: pass
thread = threading.Thread(target=write)
thread.start()
while made < 200: pass
os.rename('a', 'b')
stop = True
thread.join()
names = os.listdir('b/s')
print(len([n for n in names if n.startswith('new')]) == made, len(names) - made, os.listdir('.'))
print(all(open(f'b/s/{i}').read() == f'{i}\\n' for i in range(1, 1501)))
");
        assert_eq!(out, "True 1500 ['b']\nTrue\n");
    }
}

each_user! {
    fn a_timer_does_not_interrupt_it(world) {
        require!(world, Capability::Program("python3"));
        world.host_ok("mkdir -p a/s c/s; for i in $(seq 800); do echo $i >a/s/$i; echo $i >c/s/$i; done");
        // A call that the server has not taken yet ends with EINTR where the handler asks for that;
        // then nothing was renamed, and one that was taken is never interrupted.
        let out = python(world, &[], "
import ctypes, errno, os, signal
libc = ctypes.CDLL(None, use_errno=True)
rang, interrupted = 0, 0
def ring(*_):
    global rang
    rang += 1
signal.signal(signal.SIGALRM, ring)
def mv(old, new):
    global interrupted
    while libc.rename(old, new) != 0:
        assert ctypes.get_errno() == errno.EINTR, ctypes.get_errno()
        assert os.path.exists(old)
        interrupted += 1
signal.setitimer(signal.ITIMER_REAL, 0.002, 0.002)
for interrupts, names in ((False, [b'a', b'b', b'a/s']), (True, [b'c', b'd', b'c/s'])):
    signal.siginterrupt(signal.SIGALRM, interrupts)
    mv(names[0], names[1])
    mv(names[1] + b'/s', names[2][:1] + b'2')
    for _ in range(300):
        mv(names[1], names[0])
        mv(names[0], names[1])
    if not interrupts: print(interrupted)
signal.setitimer(signal.ITIMER_REAL, 0)
print(rang > 0, sorted(os.listdir('.')), len(os.listdir('a2')), len(os.listdir('c2')))
");
        assert_eq!(out, "0\nTrue ['a2', 'b', 'c2', 'd'] 800 800\n");
    }
}

each_user! {
    fn many_at_once_all_arrive(world) {
        require!(world, Capability::Program("python3"));
        world.host_ok("for p in 0 1 2 3; do for i in $(seq 50); do mkdir -p $p/d$i/s; echo $p.$i >$p/d$i/s/f; done; done; mkdir shared");
        let out = python(world, &[], "
import os
children = []
for p in range(4):
    pid = os.fork()
    if pid == 0:
        for i in range(1, 51):
            name = f'{p}/d{i}'
            for step in range(9):
                new = f'shared/{p}.{i}.{step}' if step % 2 else f'{p}/x{i}.{step}'
                os.rename(name, new)
                name = new
            os.rename(name, f'shared/{p}.{i}')
        os._exit(0)
    children.append(pid)
print([os.waitpid(pid, 0)[1] for pid in children])
names = os.listdir('shared')
print(len(names), all(open(f'shared/{n}/s/f').read() == n + '\\n' for n in names))
");
        assert_eq!(out, "[0, 0, 0, 0]\n200 True\n");
    }
}

each_user! {
    fn a_directory_that_is_too_large_is_left_to_the_program(world) {
        require!(world, Capability::Program("python3"));
        world.host_ok("mkdir a; python3 -c \"for i in range(20001): open(f'a/{i}', 'x').close()\"");
        let program = "import os\ntry: os.rename('a', 'b')\nexcept OSError as e: print(e.errno, os.listdir('.'))";
        assert_eq!(python(world, &[], program), "18 ['a']\n");
        world.changes().assert_plain(&[]);
        let upper = world.session_dir().join("layers/workspace/upper");
        assert_eq!(std::fs::read_dir(upper).unwrap().count(), 0, "nothing was copied");
    }
}

each_user! {
    fn what_belongs_to_somebody_else_stays_where_it_is(world) {
        require!(world, Capability::Program("python3"));
        require!(world, Capability::Root);
        tree(world, "a");
        let file = world.workspace.join("a/s/g");
        nix::unistd::chown(&file, Some(4242.into()), Some(4242.into())).unwrap();
        let program = "import os\ntry: os.rename('a', 'b')\nexcept OSError as e: print(e.errno, os.listdir('.'))";
        assert_eq!(python(world, &[], program), "18 ['a']\n");
        world.changes().assert_plain(&[]);
    }
}

each_user! {
    fn a_path_that_changes_under_way_gains_nothing(world) {
        require!(world, Capability::Program("python3"));
        for name in ["shut", "open"] {
            world.host_ok(&format!("mkdir {name}"));
            tree(world, &format!("{name}/a"));
        }
        world.host_ok("chmod 555 shut; mkdir -p ../outside/a; echo o >../outside/a/f");
        let outside = world.root.join("outside");
        let before = Tree::of(&outside);
        let program = format!("
import ctypes, os, threading, time
libc = ctypes.CDLL(None, use_errno=True)
places = [b'open/', b'shut/', b'{}/']
old, new = ctypes.create_string_buffer(300), ctypes.create_string_buffer(300)
stop = False
def swap():
    n = 0
    while not stop:
        n += 1
        old.value = places[n % 3] + (b'a' if n % 2 else b'b')
        new.value = places[n // 3 % 3] + (b'b' if n % 2 else b'a')
        tmp = f'link{{n % 2}}'
        try: os.symlink(places[n % 3].decode(), tmp); os.replace(tmp, 'through')
        except OSError: pass
threads = [threading.Thread(target=swap) for _ in range(2)]
[t.start() for t in threads]
end = time.time() + 3
while time.time() < end:
    libc.rename(old, new)
    libc.rename(b'through/a', b'through/b')
    libc.rename(b'through/b', b'through/a')
stop = True
[t.join() for t in threads]
print(os.listdir('shut'), sum(len(f) for _, _, f in os.walk('open')), sum(len(f) for _, _, f in os.walk('shut')))
", outside.display());
        assert_eq!(python(world, &[], &program), "['a'] 3 3\n");
        before.assert_same(&Tree::of(&outside), "outside");
        let names = world.changes().plain();
        assert!(names.iter().all(|n| !n.contains("pvisor-renaming") && !n.contains("shut")), "{names:?}");
    }
}

each_user! {
    fn a_program_that_locked_itself_in_stays_locked_in(world) {
        require!(world, Capability::Program("python3"));
        tree(world, "a");
        let out = python(world, &[], "
import ctypes, errno, os, struct
libc = ctypes.CDLL(None, use_errno=True)
REMOVE_DIR, MAKE_DIR = 1 << 4, 1 << 7
rules = struct.pack('Q', REMOVE_DIR | MAKE_DIR)
fd = libc.syscall(444, rules, len(rules), 0)
if fd < 0 or libc.syscall(446, fd, 0) != 0: print('EACCES')
else:
    r = libc.rename(b'a', b'b')
    print(errno.errorcode[ctypes.get_errno()] if r else 'renamed')
print(sorted(os.listdir('.')))
");
        assert_eq!(out, "EACCES\n['a']\n");
    }
}

each_user! {
    fn a_second_listener_is_refused_and_a_plain_filter_is_not(world) {
        require!(world, Capability::Program("python3"));
        tree(world, "a");
        let out = python(world, &[], "
import ctypes, errno, os, struct
libc = ctypes.CDLL(None, use_errno=True)
allow = struct.pack('HBBI', 6, 0, 0, 0x7fff0000)
code = ctypes.create_string_buffer(allow, len(allow))
filter = struct.pack('HxxxxxxP', 1, ctypes.addressof(code))
number = {'x86_64': 317, 'aarch64': 277}[os.uname().machine]
for flags in (1 << 3, 0):
    r = libc.syscall(number, 1, flags, filter)
    print(errno.errorcode[ctypes.get_errno()] if r < 0 else r)
os.rename('a', 'b')
print(os.listdir('.'))
");
        assert_eq!(out, "EBUSY\n0\n['b']\n");
    }
}

each_user! {
    fn its_server_is_out_of_reach(world) {
        require!(world, Capability::Program("python3"));
        tree(world, "a");
        let done = world.run(
            "grep -l pvisor-renamer /proc/[0-9]*/comm; trap '' TERM HUP; kill -TERM -1; kill -HUP -1; \
             mv a b; cat b/f; ls",
        );
        assert_eq!(done.out(), "1\nb\n");
    }
}

each_user! {
    fn a_sandbox_inside_renames_as_well(world) {
        require!(world, Capability::Program("python3"));
        require!(world, Capability::Program("bwrap"));
        if world.user.uid == 0 {
            // The kernel lets nobody without capabilities map user id 0.
            return;
        }
        tree(world, "a");
        tree(world, "in/etc");
        let inner = world.root.join("inner.py");
        let program = "import os\nos.rename('a', 'b')\nos.rename(os.path.abspath('b/s'), os.path.abspath('c'))\n\
                       print(sorted(os.listdir('.')))\n\
                       os.chroot('in')\nos.rename('/etc', '/x')\nos.rename('/x/s', '/etc')\n\
                       print(sorted(os.listdir('/')), sorted(os.listdir('/etc')))\n";
        std::fs::write(&inner, program).unwrap();
        world.own(&inner, 0o644);
        let script = format!(
            "bwrap --unshare-user --uid 0 --cap-add ALL --unshare-pid --ro-bind / / --proc /proc \
             --bind $PWD $PWD --chdir $PWD python3 {}",
            inner.display()
        );
        let out = world.run_with(&["--allow-nested"], &script).ok().out();
        assert_eq!(out, "['b', 'c', 'in']\n['etc', 'x'] ['g', 't']\n");
    }
}
