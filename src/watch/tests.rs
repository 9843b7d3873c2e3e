use std::fs;
use std::io::Write;
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use super::{Hint, Watch};
use crate::layer::{Driver, Layer};

fn layer(dir: &Path) -> Layer {
    let layer = Layer {
        name: "workspace".into(),
        root: dir.join("lower"),
        dir: dir.join("layer"),
        driver: Driver::Overlayfs,
    };
    fs::create_dir_all(&layer.root).expect("mkdir");
    fs::create_dir_all(layer.upper()).expect("mkdir");
    layer
}

fn watch(layer: &Layer) -> (Watch, Receiver<Hint>) {
    let (tell, hints) = channel();
    let watch = Watch::start(std::slice::from_ref(layer), move |hint| {
        tell.send(hint).is_ok()
    })
    .expect("start");
    wait(&hints, Hint::Upper);
    (watch, hints)
}

fn wait(hints: &Receiver<Hint>, hint: Hint) {
    let end = Instant::now() + Duration::from_secs(20);
    while let Ok(got) = hints.recv_timeout(end.saturating_duration_since(Instant::now())) {
        if got == hint {
            return;
        }
    }
    panic!("no hint {hint:?}");
}

/// Waits until no hint comes for a while.
fn settle(hints: &Receiver<Hint>) {
    while hints.recv_timeout(Duration::from_millis(250)).is_ok() {}
}

#[test]
fn every_kind_of_write_makes_a_hint() {
    let dir = tempfile::tempdir().expect("tempdir");
    let layer = layer(dir.path());
    let upper = layer.upper();
    let (_watch, hints) = watch(&layer);
    fs::create_dir_all(upper.join("a/b/c")).expect("mkdir");
    wait(&hints, Hint::Upper);
    settle(&hints);
    let mut file = fs::File::create(upper.join("a/b/c/f")).expect("create");
    wait(&hints, Hint::Upper);
    settle(&hints);
    file.write_all(b"x").expect("write");
    wait(&hints, Hint::Upper);
    // A directory that moved is still watched.
    fs::rename(upper.join("a"), upper.join("z")).expect("rename");
    wait(&hints, Hint::Upper);
    settle(&hints);
    fs::write(upper.join("z/b/c/g"), "g").expect("write");
    wait(&hints, Hint::Upper);
    settle(&hints);
    fs::remove_file(upper.join("z/b/c/g")).expect("unlink");
    wait(&hints, Hint::Upper);
}

#[test]
fn stores_through_a_map_are_noticed() {
    let dir = tempfile::tempdir().expect("tempdir");
    let layer = layer(dir.path());
    let (_watch, hints) = watch(&layer);
    let script = "import mmap, sys\n\
        f = open(sys.argv[1], 'w+b'); f.write(b'a' * 4096); f.flush()\n\
        m = mmap.mmap(f.fileno(), 4096)\n\
        print('mapped', flush=True); sys.stdin.readline()\n\
        m[0] = 98; print('stored', flush=True); sys.stdin.readline()\n";
    let child = std::process::Command::new("python3")
        .args(["-c", script])
        .arg(layer.upper().join("m"))
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn();
    let Ok(mut child) = child else {
        eprintln!("skipped: python3 is missing");
        return;
    };
    let mut out = std::io::BufReader::new(child.stdout.take().expect("stdout"));
    let mut line = String::new();
    std::io::BufRead::read_line(&mut out, &mut line).expect("read");
    wait(&hints, Hint::Upper);
    settle(&hints);
    let stdin = child.stdin.as_mut().expect("stdin");
    stdin.write_all(b"\n").expect("go");
    wait(&hints, Hint::Upper);
    stdin.write_all(b"\n").expect("go");
    child.wait().expect("wait");
}

#[test]
fn a_burst_in_new_directories_ends_with_a_hint() {
    let dir = tempfile::tempdir().expect("tempdir");
    let layer = layer(dir.path());
    let upper = layer.upper();
    let (_watch, hints) = watch(&layer);
    for outer in 0..50 {
        for inner in 0..10 {
            let dir = upper.join(format!("{outer}/{inner}"));
            fs::create_dir_all(&dir).expect("mkdir");
            fs::write(dir.join("f"), "x").expect("write");
        }
    }
    wait(&hints, Hint::Upper);
    settle(&hints);
    // Each of the directories is armed by now.
    for outer in [0, 17, 49] {
        fs::write(upper.join(format!("{outer}/9/last")), "x").expect("write");
        wait(&hints, Hint::Upper);
        settle(&hints);
    }
}

#[test]
fn host_directories_are_watched_while_they_are_wanted() {
    let dir = tempfile::tempdir().expect("tempdir");
    let layer = layer(dir.path());
    let (watch, hints) = watch(&layer);
    fs::write(layer.root.join("f"), "1").expect("write");
    watch.set_host_directories(vec![layer.root.clone(), layer.root.join("missing")]);
    settle(&hints);
    fs::write(layer.root.join("f"), "2").expect("write");
    wait(&hints, Hint::Host);
    settle(&hints);
    assert_eq!(fs::read(layer.root.join("f")).expect("read"), b"2");
    assert!(
        hints.recv_timeout(Duration::from_millis(300)).is_err(),
        "reading is no movement"
    );
    watch.set_host_directories(Vec::new());
    settle(&hints);
    fs::write(layer.root.join("f"), "3").expect("write");
    assert!(hints.recv_timeout(Duration::from_millis(300)).is_err());
}

#[test]
fn hints_are_bounded_and_rest_is_quiet() {
    let dir = tempfile::tempdir().expect("tempdir");
    let layer = layer(dir.path());
    let (_watch, hints) = watch(&layer);
    let started = Instant::now();
    for round in 0..2_000 {
        fs::write(layer.upper().join("f"), round.to_string()).expect("write");
    }
    let mut count = 0;
    while hints.recv_timeout(Duration::from_millis(250)).is_ok() {
        count += 1;
    }
    let most = started.elapsed().as_millis() / 20 + 1;
    assert!(count <= most, "{count} hints in {:?}", started.elapsed());
    assert!(hints.recv_timeout(Duration::from_millis(500)).is_err());
}
