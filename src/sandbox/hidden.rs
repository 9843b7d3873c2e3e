//! What no agent needs to see: keys, credentials, browser profiles. Owns the built-in table and
//! which of it exists on this machine; masking is done where the view is built.
//!
//! What exists when the command starts is masked; what appears in the home directory later is masked
//! then. Left out on purpose: `~/.npmrc`,
//! `~/.yarnrc.yml` and `~/.config/pip` (package managers stop working without their registry
//! settings; keep tokens in the environment) and the agents' own sign-in files (`~/.claude`,
//! `~/.codex`, ...), which they need.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use crate::paths::Environment;

/// Below the home directory.
const IN_HOME: &[&str] = &[
    // Keys.
    ".ssh",
    ".gnupg",
    ".pki",
    ".putty",
    ".minisign",
    ".age",
    ".config/age",
    ".config/sops",
    // Clouds and clusters.
    ".aws",
    ".azure",
    ".oci",
    ".kube",
    ".config/gcloud",
    ".config/doctl",
    ".config/hcloud",
    ".config/rclone",
    ".config/helm/registry",
    ".config/containers/auth.json",
    ".docker/config.json",
    ".docker/contexts",
    ".docker/run",
    ".docker/desktop",
    ".colima",
    ".rd",
    ".fly",
    ".boto",
    ".gsutil",
    ".s3cfg",
    ".databrickscfg",
    ".snowflake",
    ".terraformrc",
    ".terraform.d/credentials.tfrc.json",
    ".vault-token",
    // Forges and registries.
    ".netrc",
    "_netrc",
    ".authinfo",
    ".authinfo.gpg",
    ".git-credentials",
    ".config/git/credentials",
    ".config/gh",
    ".config/hub",
    ".config/glab-cli",
    ".cargo/credentials",
    ".cargo/credentials.toml",
    ".pypirc",
    ".gem/credentials",
    ".config/composer/auth.json",
    // Databases and mail.
    ".pgpass",
    ".my.cnf",
    ".mylogin.cnf",
    ".msmtprc",
    ".fetchmailrc",
    ".mbsyncrc",
    // Password stores.
    ".password-store",
    ".local/share/keyrings",
    ".local/share/kwalletd",
    ".op",
    ".1password",
    ".config/op",
    ".config/1Password",
    ".config/Bitwarden",
    ".config/Bitwarden CLI",
    ".config/keepassxc",
    // Wallets.
    ".bitcoin",
    ".ethereum",
    ".electrum",
    ".config/solana",
    // The screen.
    ".Xauthority",
    ".ICEauthority",
    // Browsers, mail programs and messengers.
    ".mozilla",
    ".librewolf",
    ".waterfox",
    ".zen",
    ".thunderbird",
    ".config/mozilla",
    ".config/google-chrome",
    ".config/google-chrome-beta",
    ".config/google-chrome-unstable",
    ".config/chromium",
    ".config/BraveSoftware",
    ".config/microsoft-edge",
    ".config/vivaldi",
    ".config/opera",
    ".cache/mozilla",
    ".cache/google-chrome",
    ".cache/chromium",
    ".var/app/org.mozilla.firefox",
    ".var/app/org.mozilla.Thunderbird",
    ".var/app/com.google.Chrome",
    ".var/app/org.chromium.Chromium",
    ".var/app/com.brave.Browser",
    ".var/app/com.microsoft.Edge",
    "snap/firefox",
    "snap/chromium",
    "snap/thunderbird",
    ".config/Signal",
    ".config/Slack",
    ".config/discord",
    ".config/Element",
    ".local/share/TelegramDesktop",
];

/// Of the whole machine. An ordinary user cannot read them anyway; root's agent could.
const IN_SYSTEM: &[&str] = &[
    "/etc/shadow",
    "/etc/shadow-",
    "/etc/gshadow",
    "/etc/gshadow-",
    "/etc/krb5.keytab",
    "/etc/ssl/private",
    "/etc/wireguard",
    "/etc/NetworkManager/system-connections",
];

/// Every entry of the built-in table that exists, as absolute paths; `given_back` is left out.
pub fn existing(home: &Path, given_back: &[PathBuf]) -> Vec<PathBuf> {
    let in_home = IN_HOME.iter().map(|entry| home.join(entry));
    let in_system = IN_SYSTEM.iter().map(PathBuf::from);
    in_home
        .chain(in_system)
        .chain(host_keys())
        .filter(|path| !given_back.contains(path))
        // Follows links: a dangling one hides nothing.
        .filter(|path| nix::sys::stat::stat(path).is_ok())
        .collect()
}

/// Every entry of the built-in table below the home directory that does not exist (yet), relative to
/// it; `given_back` is left out.
pub fn missing(home: &Path, given_back: &[PathBuf]) -> Vec<PathBuf> {
    let all = IN_HOME.iter().map(PathBuf::from);
    all.filter(|entry| !given_back.contains(&home.join(entry)))
        .filter(|entry| nix::sys::stat::stat(&home.join(entry)).is_err())
        .collect()
}

/// Sockets that the caller's environment names (ssh and gpg agents, D-Bus, Wayland, a container
/// engine, sound) and the runtime directory itself, where they lie outside the places that are
/// private anyway: a socket can be connected to through a read-only mount.
pub fn sockets(environment: &Environment) -> Vec<PathBuf> {
    let value = |name: &str| {
        environment
            .get(OsStr::new(name))
            .map(|v| v.as_bytes().to_vec())
    };
    let runtime = value("XDG_RUNTIME_DIR");
    let mut named: Vec<Vec<u8>> = Vec::new();
    named.extend(value("SSH_AUTH_SOCK"));
    // PATH:PID:VERSION
    named.extend(value("GPG_AGENT_INFO").map(|v| until(&v, b':')));
    for name in ["DOCKER_HOST", "CONTAINER_HOST", "PULSE_SERVER"] {
        let text = value(name).unwrap_or_default();
        let path = text.strip_prefix(b"unix:".as_slice()).unwrap_or_default();
        named.push(path.strip_prefix(b"//".as_slice()).unwrap_or(path).to_vec());
    }
    // unix:path=PATH,guid=...;unix:...
    for address in value("DBUS_SESSION_BUS_ADDRESS")
        .unwrap_or_default()
        .split(|b| *b == b';')
    {
        named.extend(
            address
                .strip_prefix(b"unix:path=".as_slice())
                .map(|v| until(v, b',')),
        );
    }
    if let (Some(directory), Some(display)) = (&runtime, value("WAYLAND_DISPLAY")) {
        named.push([directory.as_slice(), b"/", &display].concat());
    }
    named.extend(runtime);
    named
        .into_iter()
        .map(|path| PathBuf::from(OsString::from_vec(path)))
        .filter(|path| path.is_absolute() && path.parent().is_some() && path.exists())
        .collect()
}

fn until(text: &[u8], end: u8) -> Vec<u8> {
    text.split(|b| *b == end)
        .next()
        .unwrap_or_default()
        .to_vec()
}

/// The ssh server's private keys.
fn host_keys() -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir("/etc/ssh") else {
        return Vec::new();
    };
    let mut keys: Vec<PathBuf> = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| {
            let name = path.file_name().unwrap_or_default().as_encoded_bytes();
            name.starts_with(b"ssh_host_") && name.ends_with(b"_key")
        })
        .collect();
    keys.sort();
    keys
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sockets_an_environment_names_are_found() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let path = |name: &str| {
            let path = dir.path().join(name);
            std::fs::write(&path, "").expect("file");
            path
        };
        let (ssh, bus, docker) = (path("agent"), path("bus"), path("docker.sock"));
        let environment: Environment = [
            ("SSH_AUTH_SOCK", ssh.display().to_string()),
            (
                "DBUS_SESSION_BUS_ADDRESS",
                format!("unix:path={},guid=1", bus.display()),
            ),
            ("DOCKER_HOST", format!("unix://{}", docker.display())),
            ("WAYLAND_DISPLAY", "none".into()),
            ("GPG_AGENT_INFO", "relative:1:1".into()),
        ]
        .map(|(name, value)| (OsString::from(name), OsString::from(value)))
        .into();
        assert_eq!(sockets(&environment), [ssh, docker, bus]);
    }

    #[test]
    fn only_what_exists_and_was_not_given_back_is_listed() {
        let home = tempfile::tempdir().expect("home");
        for dir in [".ssh", ".aws", ".config/gh"] {
            std::fs::create_dir_all(home.path().join(dir)).expect("dir");
        }
        std::fs::create_dir(home.path().join("elsewhere")).expect("dir");
        std::os::unix::fs::symlink("elsewhere", home.path().join(".kube")).expect("link");
        std::os::unix::fs::symlink("nowhere", home.path().join(".azure")).expect("link");
        let found = existing(home.path(), &[home.path().join(".aws")]);
        let found: Vec<_> = found
            .iter()
            .filter_map(|p| p.strip_prefix(home.path()).ok())
            .collect();
        assert_eq!(
            found,
            [".ssh", ".kube", ".config/gh"].map(Path::new),
            "a link to something is listed, a dangling one is not"
        );
    }
}
