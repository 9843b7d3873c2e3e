//! What no agent needs to see: keys, credentials, browser profiles. Owns the built-in table and
//! which of it exists on this machine; masking is done by [`super::view`].
//!
//! Only what exists when the command starts is masked. Left out on purpose: `~/.npmrc`,
//! `~/.yarnrc.yml` and `~/.config/pip` (package managers stop working without their registry
//! settings; keep tokens in the environment) and the agents' own sign-in files (`~/.claude`,
//! `~/.codex`, ...), which they need.

use std::path::{Path, PathBuf};

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
