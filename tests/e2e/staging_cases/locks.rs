//! Locks and shared state between processes, whose holder may die.

use crate::support::{Capability, each_driver_and_user, require};

each_driver_and_user! {
    /// A waiter gets the lock when the holder lets go, and nobody else waits for it.
    fn flock_waits_and_holds_up_nobody(stage) {
        stage.host_ok("mkdir d; : >held");
        let done = stage.run(
            ": >l; mkfifo go; (flock 9; echo locked >go; read -r x <go) 9>l & read -r x <go; \
             flock -n l true || echo busy; timeout 5 ls -d d; \
             (timeout 20 flock l echo second) & echo release >go; wait; \
             (flock 9; echo locked >go; exec sleep 60) 9>held & holder=$!; read -r x <go; \
             flock -n held true || echo busy; kill -9 $holder; wait $holder 2>/dev/null; \
             timeout 5 flock held echo third; rm go",
        );
        assert_eq!(done.out(), "busy\nd\nsecond\nbusy\nthird\n", "{done}");
    }
}

each_driver_and_user! {
    /// Record locks between two processes, and their end with SIGKILL.
    fn record_locks(stage) {
        require!(stage, Capability::Program("python3"));
        let both = stage.beside_twin(
            "echo 0123456789 >f",
            "cat >hold.py <<'X'
import fcntl, os, sys, time
d = open('f', 'r+')
fcntl.lockf(d, fcntl.LOCK_EX, 5, 0)
print('held', flush=True)
time.sleep(60)
X
python3 -c \"
import fcntl, subprocess
holder = subprocess.Popen(['python3', 'hold.py'], stdout=subprocess.PIPE, text=True)
print(holder.stdout.readline().strip())
d = open('f', 'r+')
for start in (0, 5):
    try:
        fcntl.lockf(d, fcntl.LOCK_EX | fcntl.LOCK_NB, 5, start)
        print(start, 'free')
    except OSError as e:
        print(start, 'locked', e.errno)
holder.kill()
holder.wait()
fcntl.lockf(d, fcntl.LOCK_EX, 5, 0)
print('taken')\"; rm hold.py",
        );
        both.both_print("held\n0 locked 11\n5 free\ntaken\n");
    }
}

/// Two writers on one database in the mode that maps memory; one is killed.
const WAL: &str = "cat >w.py <<'X'
import sqlite3, sys
db = sqlite3.connect('db', timeout=30, isolation_level=None)
print(db.execute('pragma journal_mode=wal').fetchone()[0], flush=True)
db.execute('create table if not exists t(who, n)')
for n in range(200):
    db.execute('insert into t values(?, ?)', (sys.argv[1], n))
    if n == 50: print('half', flush=True)
if sys.argv[1] == 'b': sys.stdin.read()
X
python3 -c \"
import subprocess
start = lambda who: subprocess.Popen(['python3', 'w.py', who], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
b = start('b')
print(b.stdout.readline().strip(), b.stdout.readline().strip())
a = start('a')
a.stdin.close()
print(a.stdout.readline().strip())
print(a.wait())
b.kill(); b.wait()\"; rm w.py";

each_driver_and_user! {
    /// sqlite's write-ahead log: the index is mapped memory that two processes share.
    fn sqlite_write_ahead_log(stage) {
        require!(stage, Capability::Program("python3"));
        let done = stage.run(WAL);
        assert_eq!(done.out(), "wal half\nwal\n0\n", "{done}");
        let lines = stage.changes().lines();
        for name in ["added db", "added db-wal", "added db-shm"] {
            assert!(lines.contains(&name.into()), "{name} in {lines:?}");
        }
        stage.pvisor(["commit", "--all"]).ok();
        let count = stage.host_ok(
            "python3 -c \"import sqlite3; d = sqlite3.connect('db'); \
             print(d.execute('pragma integrity_check').fetchone()[0], d.execute('pragma journal_mode').fetchone()[0]); \
             print(*d.execute('select who, count(*) from t group by who order by who').fetchall())\"",
        );
        let (check, rows) = count.split_once('\n').unwrap();
        assert_eq!(check, "ok wal");
        assert!(rows.starts_with("('a', 200) ('b', "), "{rows}");
        // The same database goes on, its files now the host's.
        let again = stage.run(
            "python3 -c \"import sqlite3; d = sqlite3.connect('db'); d.execute('insert into t values(1, 1)'); \
             d.commit(); print(d.execute('pragma integrity_check').fetchone()[0])\"",
        );
        assert_eq!(again.out(), "ok\n", "{again}");
    }
}

each_driver_and_user! {
    /// A database without its log lacks what the log holds: leaving the log out is remarked.
    fn a_database_is_not_committed_without_its_log_in_silence(stage) {
        require!(stage, Capability::Program("python3"));
        stage.run(
            "python3 -c \"import os, sqlite3; d = sqlite3.connect('db'); d.execute('pragma journal_mode=wal'); \
             d.execute('create table t(x)'); d.execute('insert into t values(7)'); d.commit(); os._exit(0)\"",
        );
        stage.pvisor(["approve", "db"]).ok();
        for flags in [&["commit", "--dry-run"][..], &["commit"]] {
            let done = stage.pvisor(flags.iter().copied()).ok();
            for name in ["db-wal", "db-shm"] {
                let warning = format!("{name} is left out: the database beside it may lack its last changes");
                assert!(done.err().contains(&warning), "{done}");
            }
        }
        let rest = stage.pvisor(["commit", "--all"]).ok();
        assert!(!rest.err().contains("left out"), "{rest}");
        let rows = "python3 -c \"import sqlite3; print(*sqlite3.connect('db').execute('select x from t').fetchone())\"";
        assert_eq!(stage.host_ok(rows), "7\n");
    }
}
