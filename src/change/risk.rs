//! Why a change deserves a second look. Owns the lists of names; no I/O.

use super::{ChangeKind, Class, Risk};
use crate::RelPath;
use crate::layer::{FileType, Node};

/// Lock files of package managers, by name.
const LOCKFILES: &[&[u8]] = &[
    b"Cargo.lock",
    b"Gemfile.lock",
    b"Package.resolved",
    b"Pipfile.lock",
    b"Podfile.lock",
    b"bun.lock",
    b"bun.lockb",
    b"composer.lock",
    b"conan.lock",
    b"deno.lock",
    b"flake.lock",
    b"go.sum",
    b"gradle.lockfile",
    b"mix.lock",
    b"npm-shrinkwrap.json",
    b"package-lock.json",
    b"packages.lock.json",
    b"pdm.lock",
    b"pnpm-lock.yaml",
    b"poetry.lock",
    b"pubspec.lock",
    b"uv.lock",
    b"yarn.lock",
];

/// Files of build services, by name.
const CI_FILES: &[&[u8]] = &[
    b".appveyor.yml",
    b".cirrus.yml",
    b".drone.yml",
    b".gitlab-ci.yml",
    b".travis.yml",
    b".woodpecker.yml",
    b"Jenkinsfile",
    b"appveyor.yml",
    b"azure-pipelines.yml",
    b"bitbucket-pipelines.yml",
    b"cloudbuild.yaml",
];

/// Directories of build services, as the path's first components.
const CI_DIRS: &[&[&[u8]]] = &[
    &[b".buildkite"],
    &[b".ci"],
    &[b".circleci"],
    &[b".woodpecker"],
    &[b".forgejo", b"workflows"],
    &[b".gitea", b"workflows"],
    &[b".github", b"actions"],
    &[b".github", b"workflows"],
];

/// What the contents alone tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Looks {
    /// Either side is not text.
    pub binary: bool,
    /// The agent's side holds characters that a reader would not notice.
    pub hidden: bool,
}

/// Heaviest first, without duplicates.
pub(super) fn risks(
    path: &RelPath,
    kind: &ChangeKind,
    class: Class,
    before: Option<&Node>,
    after: Option<&Node>,
    looks: Looks,
) -> Vec<Risk> {
    let mut found = Vec::new();
    by_path(path, class, &mut found);
    if let ChangeKind::Renamed { from } = kind {
        by_path(from, class, &mut found);
    }
    match kind {
        ChangeKind::Deleted => found.push(Risk::Delete),
        ChangeKind::Type => found.push(Risk::TypeChange),
        _ => {}
    }
    if let Some(after) = after {
        by_node(path, before, after, &mut found);
    }
    if looks.binary {
        found.push(Risk::Binary);
    }
    let hidden_name = crate::text::has_hidden(path.as_bytes())
        || path
            .as_bytes()
            .iter()
            .any(|b| matches!(b, b'\n' | b'\t' | b'\r'));
    if looks.hidden || hidden_name {
        found.push(Risk::HiddenText);
    }
    found.sort_unstable();
    found.dedup();
    found
}

fn by_path(path: &RelPath, class: Class, found: &mut Vec<Risk>) {
    let parts: Vec<&[u8]> = path.components().collect();
    let name = parts.last().copied().unwrap_or_default();
    let git = parts.iter().position(|c| *c == b".git");
    if let Some(at) = git {
        let inside = &parts[at + 1..];
        let in_info = inside.len() >= 2 && inside[inside.len() - 2] == b"info";
        if inside.contains(&&b"hooks"[..]) {
            found.push(Risk::GitHook);
        } else if matches!(name, b"config" | b"config.worktree")
            && !inside.is_empty()
            || in_info && name == b"attributes"
            // A `.git` file or link points a work tree at another repository.
            || inside.is_empty()
        {
            found.push(Risk::GitConfig);
        } else if class != Class::GitObject {
            found.push(Risk::GitInternal);
        }
    } else if matches!(name, b".gitattributes" | b".gitmodules") {
        found.push(Risk::GitConfig);
    }
    if CI_FILES.contains(&name) || CI_DIRS.iter().any(|dir| parts.starts_with(dir)) {
        found.push(Risk::Ci);
    }
    if LOCKFILES.contains(&name) {
        found.push(Risk::Lockfile);
    }
    if git.is_none() && parts.iter().any(|c| c.starts_with(b".")) {
        found.push(Risk::Dotfile);
    }
}

fn by_node(path: &RelPath, before: Option<&Node>, after: &Node, found: &mut Vec<Risk>) {
    let old_mode = before.map_or(0, |n| n.mode);
    match after.file_type {
        FileType::Symlink => {
            let target = after.target.as_deref().unwrap_or_default();
            if leaves(path, target) {
                found.push(Risk::OutsideLink);
            }
            if crate::text::has_hidden(target) || target.iter().any(u8::is_ascii_control) {
                found.push(Risk::HiddenText);
            }
            return;
        }
        FileType::Socket | FileType::Device => found.push(Risk::Uncommittable),
        FileType::File if after.mode & 0o111 != 0 => found.push(Risk::Executable),
        _ => {}
    }
    if after.mode & 0o7000 & !old_mode != 0 {
        found.push(Risk::SpecialMode);
    }
    if before.is_some_and(|b| b.file_type == after.file_type && b.mode != after.mode) {
        found.push(Risk::ModeChange);
    }
}

/// Whether a link's target is absolute or climbs out of the layer.
fn leaves(path: &RelPath, target: &[u8]) -> bool {
    if target.first() == Some(&b'/') {
        return true;
    }
    let mut depth = path.depth() as i64 - 1;
    for part in target.split(|b| *b == b'/') {
        match part {
            b"" | b"." => {}
            b".." => depth -= 1,
            _ => depth += 1,
        }
        if depth < 0 {
            return true;
        }
    }
    false
}

/// Whether a path is named as git names new objects and packs.
pub(super) fn is_git_object(path: &RelPath, is_dir: bool) -> bool {
    let parts: Vec<&[u8]> = path.components().collect();
    let Some(git) = parts.iter().rposition(|c| *c == b".git") else {
        return false;
    };
    let Some(objects) = parts[git + 1..].iter().position(|c| *c == b"objects") else {
        return false;
    };
    let between = &parts[git + 1..git + 1 + objects];
    if !between.is_empty() && between[0] != b"modules" {
        return false;
    }
    let hex = |s: &[u8]| s.iter().all(u8::is_ascii_hexdigit);
    match (&parts[git + 2 + objects..], is_dir) {
        ([] | [b"pack" | b"info"], true) => true,
        ([fan], true) => fan.len() == 2 && hex(fan),
        ([fan, rest], false) if fan.len() == 2 => {
            hex(fan) && hex(rest) && (rest.len() == 38 || rest.len() == 62)
        }
        ([b"pack", name], false) => {
            name.starts_with(b"pack-") || name.starts_with(b"multi-pack-index")
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rel(path: &str) -> RelPath {
        RelPath::try_from(path).expect("path")
    }

    fn of_path(path: &str) -> Vec<Risk> {
        risks(
            &rel(path),
            &ChangeKind::Added,
            Class::Plain,
            None,
            None,
            Looks::default(),
        )
    }

    #[test]
    fn paths_are_marked_by_what_they_can_do() {
        assert_eq!(of_path("src/a.rs"), []);
        assert_eq!(of_path("sub/.git/hooks/pre-commit"), [Risk::GitHook]);
        assert_eq!(of_path(".git/config"), [Risk::GitConfig]);
        assert_eq!(of_path(".git/refs/heads/main"), [Risk::GitInternal]);
        assert_eq!(of_path(".gitmodules"), [Risk::GitConfig, Risk::Dotfile]);
        assert_eq!(
            of_path(".github/workflows/ci.yml"),
            [Risk::Ci, Risk::Dotfile]
        );
        assert_eq!(of_path("web/yarn.lock"), [Risk::Lockfile]);
        assert_eq!(of_path("a\nb"), [Risk::HiddenText]);
    }

    #[test]
    fn links_that_climb_out_are_known() {
        assert!(!leaves(&rel("a/l"), b"../b"));
        assert!(leaves(&rel("a/l"), b"../../b"));
        assert!(leaves(&rel("l"), b"x/../../x"));
        assert!(leaves(&rel("l"), b"/etc"));
    }

    #[test]
    fn objects_are_known_by_their_names() {
        let loose = format!(".git/objects/ab/{}", "0".repeat(38));
        assert!(is_git_object(&rel(&loose), false));
        assert!(is_git_object(&rel(&format!("sub/{loose}")), false));
        assert!(is_git_object(
            &rel(".git/modules/m/objects/pack/pack-1.pack"),
            false
        ));
        assert!(is_git_object(&rel(".git/objects/ab"), true));
        assert!(!is_git_object(&rel(".git/objects/info/alternates"), false));
        assert!(!is_git_object(&rel(".git/objects/ab/evil"), false));
        assert!(!is_git_object(&rel(".git/hooks/objects/ab"), true));
    }
}
