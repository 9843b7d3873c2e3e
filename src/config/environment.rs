//! The agent's environment: a list of what is passed, and nothing else. Owns the rule; the lists
//! themselves are data (`env.presets` in `default.toml`).

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use super::settings::EnvPolicy;
use crate::paths::{Environment, Paths};

/// Where programs are looked for when the caller has no `PATH`.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// One `--env K[=V]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnvArg {
    /// The variable.
    pub name: OsString,
    /// Its value; `None` passes the caller's.
    pub value: Option<OsString>,
}

impl EnvArg {
    /// Reads `K` or `K=V`; `None` when the name is empty.
    pub fn parse(typed: &OsStr) -> Option<Self> {
        let bytes = typed.as_bytes();
        let cut = bytes.iter().position(|b| *b == b'=');
        let name = &bytes[..cut.unwrap_or(bytes.len())];
        (!name.is_empty()).then(|| Self {
            name: OsString::from_vec(name.to_vec()),
            value: cut.map(|cut| OsString::from_vec(bytes[cut + 1..].to_vec())),
        })
    }
}

/// The whole environment of the agent's command, sorted by name: what the policy passes of the
/// caller's, then what the policy sets, then what was asked for by `--env` (which has the last
/// word, over `drop` too). `HOME`, `USER`, `LOGNAME`, `SHELL`, `PATH` and `PWD` are always there.
pub fn environment(
    policy: &EnvPolicy,
    caller: &Environment,
    paths: &Paths,
    workspace: &Path,
    asked: &[EnvArg],
) -> Vec<(OsString, OsString)> {
    let passed = |name: &OsStr| {
        let lists = policy.presets.values().chain([&policy.pass]);
        lists.flatten().any(|pattern| matches(pattern, name))
            && !policy.drop.iter().any(|pattern| matches(pattern, name))
    };
    let mut out: Environment = caller
        .iter()
        .filter(|(name, _)| passed(name))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    for (name, value) in [
        ("HOME", paths.home.as_os_str()),
        ("USER", OsStr::new(&paths.user)),
        ("LOGNAME", OsStr::new(&paths.user)),
        ("SHELL", paths.shell.as_os_str()),
    ] {
        out.insert(name.into(), value.into());
    }
    out.entry("PATH".into())
        .or_insert_with(|| DEFAULT_PATH.into());
    for (name, value) in &policy.set {
        out.insert(name.into(), value.into());
    }
    for arg in asked {
        match arg.value.as_ref().or_else(|| caller.get(&arg.name)) {
            Some(value) => out.insert(arg.name.clone(), value.clone()),
            None => out.remove(&arg.name),
        };
    }
    out.insert("PWD".into(), workspace.into());
    out.into_iter().collect()
}

fn matches(pattern: &str, name: &OsStr) -> bool {
    match pattern.strip_suffix('*') {
        Some(beginning) => name.as_bytes().starts_with(beginning.as_bytes()),
        None => name == pattern,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy() -> EnvPolicy {
        super::super::load::defaults().expect("defaults").env
    }

    fn built(policy: &EnvPolicy, caller: &[(&str, &str)], asked: &[&str]) -> Environment {
        let caller: Environment = caller.iter().map(|(k, v)| (k.into(), v.into())).collect();
        let mut paths =
            Paths::resolve(&[("HOME".into(), "/h".into())].into(), None, Path::new("/"))
                .expect("paths");
        paths.user = "ada".into();
        let asked: Vec<_> = asked
            .iter()
            .filter_map(|arg| EnvArg::parse(OsStr::new(arg)))
            .collect();
        environment(policy, &caller, &paths, Path::new("/w"), &asked)
            .into_iter()
            .collect()
    }

    fn value<'a>(env: &'a Environment, name: &str) -> Option<&'a str> {
        env.get(OsStr::new(name)).and_then(|v| v.to_str())
    }

    #[test]
    fn only_what_is_listed_passes() {
        let env = built(
            &policy(),
            &[
                ("PATH", "/bin"),
                ("LC_ALL", "C"),
                ("ANTHROPIC_API_KEY", "k"),
                ("SSH_AUTH_SOCK", "/s"),
                ("DBUS_SESSION_BUS_ADDRESS", "x"),
                ("WAYLAND_DISPLAY", "x"),
                ("DOCKER_HOST", "x"),
                ("AWS_SECRET_ACCESS_KEY", "x"),
                ("GITHUB_TOKEN", "x"),
                ("CARGO_REGISTRY_TOKEN", "x"),
                ("XDG_RUNTIME_DIR", "/run/user/0"),
                ("PVISOR_TUI_THEME", "dark"),
                ("PWD", "/elsewhere"),
            ],
            &[],
        );
        let names: Vec<_> = env.keys().filter_map(|k| k.to_str()).collect();
        assert_eq!(
            names,
            [
                "ANTHROPIC_API_KEY",
                "HOME",
                "LC_ALL",
                "LOGNAME",
                "PATH",
                "PWD",
                "SHELL",
                "USER"
            ]
        );
        assert_eq!(value(&env, "PWD"), Some("/w"));
        assert_eq!(value(&env, "HOME"), Some("/h"));
        assert_eq!(value(&env, "USER"), Some("ada"));
    }

    #[test]
    fn a_person_adds_sets_and_takes_away() {
        let mut policy = policy();
        policy.drop = vec!["ANTHROPIC_*".into()];
        policy.set.insert("FIXED".into(), "1".into());
        let caller = [("ANTHROPIC_MODEL", "m"), ("SECRET", "s"), ("TZ", "UTC")];
        let env = built(&policy, &caller, &["SECRET", "K=a=b", "TZ=", "GONE"]);
        assert_eq!(value(&env, "ANTHROPIC_MODEL"), None);
        assert_eq!(value(&env, "SECRET"), Some("s"));
        assert_eq!(value(&env, "K"), Some("a=b"));
        assert_eq!(value(&env, "TZ"), Some(""));
        assert_eq!(value(&env, "GONE"), None);
        assert_eq!(value(&env, "FIXED"), Some("1"));
        assert!(value(&env, "PATH").is_some_and(|path| path.contains("/usr/bin")));
    }

    #[test]
    fn an_argument_needs_a_name() {
        assert_eq!(EnvArg::parse(OsStr::new("=x")), None);
        assert_eq!(EnvArg::parse(OsStr::new("")), None);
    }
}
