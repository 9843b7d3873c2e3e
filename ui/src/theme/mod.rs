//! Themes: styles by scope, from TOML files built in or a person's own. Owns their format,
//! inheritance and fallback; draws nothing. The only reading of files in this module is
//! [`Theme::load`] of a person's theme.

pub mod color;
mod file;
pub mod scopes;

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use ratatui::style::Style;

pub use color::Depth;
use file::{File, Look};

const BUILT_IN: &[(&str, &str)] = &[
    ("dark", include_str!("../../../themes/dark.toml")),
    ("light", include_str!("../../../themes/light.toml")),
];

/// Why a theme cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ThemeError {
    /// No theme of that name.
    #[error("no theme is named `{name}`; there are {}.", .known.join(", "))]
    Unknown {
        /// The name.
        name: String,
        /// The names there are.
        known: Vec<String>,
    },
    /// The file cannot be read.
    #[error("reading the theme {}: {source}", pvisor::text::visible_path(path))]
    Read {
        /// Which.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// The file is not a theme.
    #[error("the theme `{name}` is not valid: {cause}")]
    Invalid {
        /// Which.
        name: String,
        /// Why not.
        cause: String,
    },
}

/// Styles by scope, ready for a terminal.
#[derive(Debug, Clone)]
pub struct Theme {
    name: String,
    depth: Depth,
    looks: HashMap<String, Look>,
    styles: HashMap<String, Style>,
}

/// Names of the built-in themes.
pub fn names() -> Vec<&'static str> {
    BUILT_IN.iter().map(|(name, _)| *name).collect()
}

/// The built-in theme that fits a terminal's background, as `COLORFGBG` (`15;0`) tells it; dark
/// when nothing does.
pub fn auto(colorfgbg: Option<&str>) -> &'static str {
    let background = colorfgbg.and_then(|v| v.rsplit(';').next()?.parse::<u8>().ok());
    match background {
        Some(7 | 9..=15) => "light",
        _ => "dark",
    }
}

/// Names of all themes: the built-in ones and those in `directory`.
pub fn names_in(directory: Option<&Path>) -> Vec<String> {
    let mut all: Vec<String> = names().into_iter().map(str::to_owned).collect();
    let entries = directory.and_then(|d| std::fs::read_dir(d).ok());
    let mut own: Vec<String> = entries
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|e| {
            let path = e.path();
            let toml = path.extension().is_some_and(|x| x == "toml");
            let stem = path.file_stem()?.to_str()?.to_owned();
            (toml && !all.contains(&stem)).then_some(stem)
        })
        .collect();
    own.sort();
    all.append(&mut own);
    all
}

impl Theme {
    /// The theme of this name, from `directory` (a person's own wins) or built in.
    pub fn load(name: &str, directory: Option<&Path>, depth: Depth) -> Result<Self, ThemeError> {
        let mut looks = HashMap::new();
        let mut chain: Vec<String> = Vec::new();
        let mut files = Vec::new();
        let mut next = Some(name.to_owned());
        while let Some(name) = next {
            // A person's `dark` may build on the built-in one.
            let own = !chain.contains(&name);
            if !own && chain.iter().filter(|n| **n == name).count() > 1 {
                return Err(ThemeError::Invalid {
                    name,
                    cause: "it inherits from itself.".into(),
                });
            }
            let text = read(&name, directory.filter(|_| own))?;
            let file: File = toml::from_str(&text).map_err(|e| ThemeError::Invalid {
                name: name.clone(),
                cause: e.to_string(),
            })?;
            next = file.inherits.as_deref().map(str::to_owned);
            chain.push(name.clone());
            files.push((name, file));
        }
        let mut palette = BTreeMap::new();
        for (_, file) in files.iter().rev() {
            palette.extend(file.palette.clone());
        }
        for (name, file) in files.iter().rev() {
            for (scope, entry) in &file.scopes {
                let look = entry.look(&palette).map_err(|cause| ThemeError::Invalid {
                    name: name.clone(),
                    cause: format!("scope `{scope}`: {cause}"),
                })?;
                if !scopes::SCOPES
                    .iter()
                    .any(|(s, _)| s == scope || s.starts_with(&format!("{scope}.")))
                {
                    return Err(ThemeError::Invalid {
                        name: name.clone(),
                        cause: format!("there is no scope `{scope}`."),
                    });
                }
                looks.insert(scope.clone(), look);
            }
        }
        let mut theme = Self {
            name: name.to_owned(),
            depth,
            looks,
            styles: HashMap::new(),
        };
        for (scope, _) in scopes::SCOPES {
            let style = theme
                .look(scope)
                .map_or_else(Style::new, |l| l.style(depth));
            theme.styles.insert((*scope).to_owned(), style);
        }
        Ok(theme)
    }

    /// The dark theme; for when a chosen one cannot be used.
    pub fn fallback(depth: Depth) -> Self {
        // Built in and loaded by a test; without it everything is drawn in the terminal's own
        // colours.
        Self::load("dark", None, depth).unwrap_or_else(|_| Self {
            name: "none".into(),
            depth,
            looks: HashMap::new(),
            styles: HashMap::new(),
        })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The terminal's colours it was made for.
    pub fn depth(&self) -> Depth {
        self.depth
    }

    /// The style of a scope.
    pub fn style(&self, scope: &str) -> Style {
        debug_assert!(
            scopes::SCOPES.iter().any(|(s, _)| *s == scope),
            "{scope} is not among the scopes"
        );
        self.styles.get(scope).copied().unwrap_or_default()
    }

    /// A scope's look, or that of the nearest prefix.
    fn look(&self, scope: &str) -> Option<Look> {
        let mut name = scope;
        loop {
            if let Some(look) = self.looks.get(name) {
                return Some(*look);
            }
            name = &name[..name.rfind('.')?];
        }
    }
}

fn read(name: &str, directory: Option<&Path>) -> Result<String, ThemeError> {
    // A name, not a path.
    let plain = !name.is_empty() && !name.contains('/') && !name.starts_with('.');
    if let Some(directory) = directory.filter(|_| plain) {
        let path = directory.join(format!("{name}.toml"));
        match std::fs::read_to_string(&path) {
            Ok(text) => return Ok(text),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
            Err(source) => return Err(ThemeError::Read { path, source }),
        }
    }
    BUILT_IN
        .iter()
        .find(|(n, _)| *n == name)
        .map(|(_, text)| (*text).to_owned())
        .ok_or_else(|| ThemeError::Unknown {
            name: pvisor::text::visible(name.as_bytes()).into_owned(),
            known: names_in(directory),
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_built_in_theme_has_every_scope_and_contrast() {
        for name in names() {
            let theme = Theme::load(name, None, Depth::True).expect("loads");
            let ground = theme
                .look("ui.background")
                .and_then(|l| l.bg)
                .expect("a background");
            for (scope, _) in scopes::SCOPES {
                let look = theme
                    .look(scope)
                    .unwrap_or_else(|| panic!("{name}: {scope}"));
                if scope.starts_with("ui.border") {
                    continue;
                }
                let text = theme.look("ui.text").and_then(|l| l.fg).expect("a text");
                let (fg, bg) = (look.fg.unwrap_or(text), look.bg.unwrap_or(ground));
                let contrast = fg.contrast(bg);
                assert!(
                    contrast >= 4.5,
                    "{name}: {scope} has contrast {contrast:.2}"
                );
            }
            // Text of any kind stays readable on the cursor's row.
            for row in ["ui.cursor", "ui.cursor.idle", "ui.range"] {
                let bg = theme.look(row).and_then(|l| l.bg).expect("a background");
                for (scope, _) in scopes::SCOPES {
                    let look = theme.look(scope).expect("checked");
                    // The cursor's ground replaces that of a line, not that of a word or a sign.
                    let takes_it = look.bg.is_none() || ["diff.plus", "diff.minus"].contains(scope);
                    if let Some(fg) = look.fg
                        && takes_it
                        && !scope.starts_with("ui.border")
                    {
                        let contrast = fg.contrast(bg);
                        assert!(contrast >= 4.5, "{name}: {scope} on {row}: {contrast:.2}");
                    }
                }
            }
        }
    }

    #[test]
    fn sixteen_colours_never_put_a_colour_on_itself() {
        for name in names() {
            let theme = Theme::load(name, None, Depth::Basic).expect("loads");
            let ground = theme.style("ui.background").bg;
            for (scope, _) in scopes::SCOPES {
                let style = theme.style(scope);
                if style.fg.is_some() {
                    assert_ne!(style.fg, style.bg.or(ground), "{name}: {scope}");
                }
            }
        }
    }

    #[test]
    fn without_colours_what_differs_by_colour_differs_by_shape() {
        for name in names() {
            let theme = Theme::load(name, None, Depth::None).expect("loads");
            for scope in [
                "ui.cursor",
                "ui.tab.active",
                "ui.range",
                "text.escape",
                "text.match",
            ] {
                let style = theme.style(scope);
                assert!(style.fg.is_none() && style.bg.is_none());
                assert!(!style.add_modifier.is_empty(), "{name}: {scope}");
            }
        }
    }

    #[test]
    fn a_persons_theme_inherits_and_is_checked() {
        let dir = tempfile::tempdir().expect("a directory");
        let write = |name: &str, text: &str| {
            std::fs::write(dir.path().join(format!("{name}.toml")), text).expect("written");
        };
        write(
            "mine",
            "inherits = \"dark\"\n[palette]\nred = \"#ff8888\"\n[scopes]\n\"diff.plus\" = { fg = [\"#00ff00\", \"green\"] }\n",
        );
        let load = |name: &str| Theme::load(name, Some(dir.path()), Depth::True);
        let theme = load("mine").expect("loads");
        assert_eq!(
            theme.style("diff.plus").fg,
            Some(ratatui::style::Color::Rgb(0, 255, 0))
        );
        // The palette of the child colours the parent's scopes.
        assert_eq!(
            theme.style("kind.deleted").fg,
            Some(ratatui::style::Color::Rgb(0xff, 0x88, 0x88))
        );
        assert!(names_in(Some(dir.path())).contains(&"mine".to_owned()));
        write("loop", "inherits = \"loop\"\n");
        assert!(load("loop").is_err());
        write("bad", "[scopes]\n\"diff.plos\" = { fg = \"#00ff00\" }\n");
        assert!(
            load("bad")
                .expect_err("refused")
                .to_string()
                .contains("diff.plos")
        );
        write("worse", "[scopes]\n\"diff.plus\" = { fg = \"nocolour\" }\n");
        assert!(load("worse").is_err());
        assert!(load("../mine").is_err());
        assert!(matches!(load("nosuch"), Err(ThemeError::Unknown { .. })));
    }

    #[test]
    fn the_background_chooses_when_it_is_known() {
        assert_eq!(auto(None), "dark");
        assert_eq!(auto(Some("15;0")), "dark");
        assert_eq!(auto(Some("0;15")), "light");
        assert_eq!(auto(Some("0;default;7")), "light");
        assert_eq!(auto(Some("nonsense")), "dark");
    }

    #[test]
    fn the_readme_lists_every_scope() {
        let readme = include_str!("../../../themes/README.md");
        for (scope, what) in scopes::SCOPES {
            assert!(
                readme.contains(&format!("| `{scope}` | {what} |")),
                "themes/README.md lacks {scope}"
            );
        }
    }

    /// Every string in the views that looks like a scope is one, and every scope is used.
    #[test]
    fn views_use_the_listed_scopes_and_no_other() {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let mut text = String::new();
        for part in ["view", "widget", "model/marks.rs"] {
            let path = source.join(part);
            let files = if path.is_dir() {
                let entries = std::fs::read_dir(&path).expect("a directory");
                entries.map(|e| e.expect("an entry").path()).collect()
            } else {
                vec![path]
            };
            for file in files {
                text.push_str(&std::fs::read_to_string(file).expect("a source file"));
            }
        }
        let groups: std::collections::BTreeSet<&str> = scopes::SCOPES
            .iter()
            .filter_map(|(s, _)| s.split_once('.').map(|(group, _)| group))
            .collect();
        for quoted in text.split('"').skip(1).step_by(2) {
            let looks_so = quoted.split_once('.').is_some_and(|(group, rest)| {
                groups.contains(group)
                    && !rest.is_empty()
                    && rest.chars().all(|c| c.is_ascii_lowercase() || c == '.')
            });
            if looks_so {
                assert!(
                    scopes::SCOPES.iter().any(|(s, _)| *s == quoted),
                    "{quoted} is not among the scopes"
                );
            }
        }
        for (scope, _) in scopes::SCOPES {
            assert!(
                text.contains(&format!("\"{scope}\"")),
                "nothing uses {scope}"
            );
        }
    }
}
