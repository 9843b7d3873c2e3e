//! Settings as a person meets them: which source wins, what is refused, what is said about it.

use std::path::Path;

use pvisor::config::{
    ConfigError, Flag, Loaded, Origin, Sources, Trust, WORKSPACE_FILE, WorkspaceFile, load,
};
use pvisor::paths::{Environment, Paths};
use pvisor::sandbox::spec::Network;
use toml::Value;

struct Place {
    dir: tempfile::TempDir,
    environment: Environment,
}

impl Place {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("tempdir");
        std::fs::create_dir_all(dir.path().join(".config/pvisor-tui")).expect("mkdir");
        std::fs::create_dir(dir.path().join("w")).expect("mkdir");
        let environment = [("HOME".into(), dir.path().into())].into();
        Self { dir, environment }
    }

    fn paths(&self) -> Paths {
        Paths::resolve(&self.environment, None, Path::new("/")).expect("paths")
    }

    fn user(&self, text: &str) {
        std::fs::write(self.paths().config_file(), text).expect("write");
    }

    fn workspace(&self) -> std::path::PathBuf {
        self.dir.path().join("w")
    }

    fn load(&self, flags: &[Flag]) -> Result<Loaded, ConfigError> {
        load(Sources {
            paths: &self.paths(),
            environment: &self.environment,
            workspace: Some(&self.workspace()),
            flags,
        })
    }

    fn trust(&self) {
        let file = WorkspaceFile::read(&self.workspace())
            .expect("read")
            .expect("there");
        let mut trust = Trust::open(&self.paths().state_dir).expect("trust");
        trust
            .record(&self.workspace(), file.digest)
            .expect("recorded");
    }
}

fn origin(loaded: &Loaded, key: &str) -> Vec<String> {
    loaded
        .rows()
        .into_iter()
        .filter(|row| row.key == key)
        .map(|row| row.origin.to_string())
        .collect()
}

#[test]
fn later_sources_win_and_are_named() {
    let mut place = Place::new();
    place.user("theme = 'paper'\nscrollback = 5\nkeep_undo = 3\n[keys]\ncommit = 'P'\nquit = []\n");
    place
        .environment
        .insert("PVISOR_TUI_SCROLLBACK".into(), "6".into());
    place
        .environment
        .insert("PVISOR_TUI_NETWORK".into(), "none".into());
    let flags = [Flag {
        flag: "--net",
        key: "network",
        value: Value::String("host".into()),
    }];
    let loaded = place.load(&flags).expect("loaded");
    assert_eq!(loaded.config.theme, "paper");
    assert_eq!(loaded.config.scrollback, 6);
    assert_eq!(loaded.config.keep_undo, 3);
    assert_eq!(loaded.config.network, Network::Host);
    assert_eq!(loaded.config.keys["commit"], ["P"]);
    assert!(loaded.config.keys["quit"].is_empty());
    assert_eq!(origin(&loaded, "scrollback"), ["PVISOR_TUI_SCROLLBACK"]);
    assert_eq!(origin(&loaded, "network"), ["--net"]);
    assert_eq!(origin(&loaded, "mode"), ["the built-in defaults"]);
    assert!(origin(&loaded, "theme")[0].ends_with("config.toml"));
    let again: toml::Table = loaded.to_toml().parse().expect("toml");
    assert_eq!(again["scrollback"], Value::Integer(6));
}

#[test]
fn unknown_names_are_errors_with_the_nearest_one() {
    let mut place = Place::new();
    place.user("[env]\npas = ['X']\n");
    let error = place.load(&[]).expect_err("unknown");
    assert!(error.to_string().contains("env.pas"), "{error}");
    assert!(error.hint().is_some_and(|hint| hint.contains("env.pass")));

    place.user("");
    place
        .environment
        .insert("PVISOR_TUI_THEM".into(), "x".into());
    let error = place.load(&[]).expect_err("unknown");
    assert!(
        error
            .hint()
            .is_some_and(|hint| hint.contains("PVISOR_TUI_THEME"))
    );
}

#[test]
fn values_that_do_not_fit_are_blamed_on_their_source() {
    let mut place = Place::new();
    place.user("scrollback = 'many'");
    let error = place.load(&[]).expect_err("type").to_string();
    assert!(error.contains("config.toml"), "{error}");
    assert!(
        error.contains("scrollback is to be a whole number, not a text"),
        "{error}"
    );

    place.user("mode = 'vm'");
    let error = place.load(&[]).expect_err("value").to_string();
    assert!(
        error.contains("config.toml") && error.contains("staged"),
        "{error}"
    );

    place.user("");
    place
        .environment
        .insert("PVISOR_TUI_KEEP_UNDO".into(), "x".into());
    let error = place.load(&[]).expect_err("number").to_string();
    assert!(error.contains("PVISOR_TUI_KEEP_UNDO"), "{error}");
}

#[test]
fn a_workspace_file_counts_only_once_trusted_and_unchanged() {
    let place = Place::new();
    place.user("hide = ['~/mine']");
    let file = place.workspace().join(WORKSPACE_FILE);
    std::fs::write(&file, "hide = ['secrets']\nnetwork = 'none'\n").expect("write");

    let loaded = place.load(&[]).expect("loaded");
    assert_eq!(loaded.config.hide, ["~/mine"]);
    assert!(
        loaded.notices[0].contains("never trusted"),
        "{:?}",
        loaded.notices
    );

    place.trust();
    let loaded = place.load(&[]).expect("loaded");
    assert_eq!(loaded.config.hide, ["~/mine", "secrets"]);
    assert_eq!(loaded.config.network, Network::None);
    assert_eq!(loaded.notices, [""; 0]);
    let hide = loaded.rows().into_iter().filter(|row| row.key == "hide");
    let origins: Vec<_> = hide.map(|row| row.origin).collect();
    assert_eq!(
        origins,
        [
            Origin::User(place.paths().config_file()),
            Origin::Workspace(file.clone())
        ]
    );

    std::fs::write(&file, "network = 'none'\n").expect("write");
    let loaded = place.load(&[]).expect("loaded");
    assert_eq!(loaded.config.network, Network::Host);
    assert!(
        loaded.notices[0].contains("has changed"),
        "{:?}",
        loaded.notices
    );

    std::fs::write(&file, "unhide = ['~/.ssh']\n").expect("write");
    place.trust();
    let error = place.load(&[]).expect_err("loosens");
    assert!(matches!(error, ConfigError::Loosens { .. }), "{error}");
}
