//! Puts the settings together, layer by layer, and remembers where each came from. Owns the order
//! of precedence: built-in defaults, user's file, workspace's file, environment, flags.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use serde::Deserialize;
use toml::{Table, Value};

use super::nearest::nearest;
use super::workspace::{WorkspaceFile, syntax};
use super::{Config, ConfigError, Trust};
use crate::paths::{Environment, Paths};
use crate::text::visible;

const DEFAULTS: &str = include_str!("default.toml");
/// Beginning of the environment variables that set something.
const PREFIX: &str = "PVISOR_TUI_";
/// Variables with that beginning that are no settings.
const NOT_SETTINGS: [&str; 2] = ["PVISOR_TUI_STATE_DIR", "PVISOR_TUI_LOG"];
/// Tables whose keys are the user's own.
const FREE_TABLES: [&str; 3] = ["keys", "env.set", "env.presets"];

/// Where a value came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// Built in.
    Default,
    /// The user's file.
    User(PathBuf),
    /// The workspace's file.
    Workspace(PathBuf),
    /// An environment variable.
    Environment(String),
    /// A flag.
    Flag(&'static str),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Default => f.write_str("the built-in defaults"),
            Origin::User(path) | Origin::Workspace(path) => {
                f.write_str(&crate::text::visible_path(path))
            }
            Origin::Environment(name) => f.write_str(&visible(name.as_bytes())),
            Origin::Flag(name) => f.write_str(name),
        }
    }
}

/// A setting given on the command line. Lists are added to, anything else is replaced.
#[derive(Debug, Clone, PartialEq)]
pub struct Flag {
    /// The flag as typed, e.g. `--net`.
    pub flag: &'static str,
    /// The setting's name.
    pub key: &'static str,
    /// Its value.
    pub value: Value,
}

/// What the settings are made of.
#[derive(Debug, Clone, Copy)]
pub struct Sources<'a> {
    /// Where the user's file and the trusted digests lie.
    pub paths: &'a Paths,
    /// The caller's environment.
    pub environment: &'a Environment,
    /// The workspace whose file counts; none for a client that only looks.
    pub workspace: Option<&'a Path>,
    /// From the command line.
    pub flags: &'a [Flag],
}

/// One value and where it came from: a row of `config show --origin`.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// The key with its tables, quoted as TOML needs it.
    pub key: String,
    /// The value; of a list the entries that share an origin.
    pub value: Value,
    /// Where from.
    pub origin: Origin,
}

/// The merged settings.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// What counts.
    pub config: Config,
    /// What the person should know, sanitised: a workspace's file that was not taken.
    pub notices: Vec<String>,
    table: Table,
    /// By key path; the entries of a list one by one.
    pub(super) origins: BTreeMap<Vec<String>, Vec<Origin>>,
}

/// The built-in settings alone.
pub fn defaults() -> Result<Config, ConfigError> {
    deserialize(default_table()?, &Origin::Default)
}

/// Reads and merges every source.
pub fn load(sources: Sources<'_>) -> Result<Loaded, ConfigError> {
    let mut merged = Merged::default();
    merged.add(default_table()?, &Origin::Default, Lists::Replace)?;
    let file = sources.paths.config_file();
    if let Some(table) = read_user(&file)? {
        merged.add(&table, &Origin::User(file), Lists::Replace)?;
    }
    let mut notices = Vec::new();
    if let Some(workspace) = sources.workspace
        && let Some(file) = WorkspaceFile::read(workspace)?
    {
        match Trust::open(&sources.paths.state_dir)?.digest(workspace) {
            Some(trusted) if trusted == file.digest => {
                let origin = Origin::Workspace(file.path.clone());
                merged.add(&file.table()?, &origin, Lists::Add)?;
            }
            other => notices.push(format!(
                "{} is not used: {}; read it, then `pvisor-tui trust {}`",
                crate::text::visible_path(&file.path),
                match other {
                    None => "it was never trusted",
                    Some(_) => "it has changed since it was trusted",
                },
                crate::text::visible_path(workspace),
            )),
        }
    }
    for (name, value) in variables(sources.environment)? {
        let (key, value) = value;
        let table = Table::from_iter([(key, value)]);
        merged.add(&table, &Origin::Environment(name), Lists::Replace)?;
    }
    for flag in sources.flags {
        let table = Table::from_iter([(flag.key.to_owned(), flag.value.clone())]);
        merged.add(&table, &Origin::Flag(flag.flag), Lists::Add)?;
    }
    Ok(Loaded {
        config: deserialize(&merged.table, &Origin::Default)?,
        notices,
        table: merged.table,
        origins: merged.origins,
    })
}

impl Loaded {
    /// Every setting as TOML.
    pub fn to_toml(&self) -> String {
        self.table.to_string()
    }

    /// Every value with its origin, in the order of the keys.
    pub fn rows(&self) -> Vec<Row> {
        let mut rows = Vec::new();
        for (path, origins) in &self.origins {
            let Some(value) = lookup(&self.table, path) else {
                continue;
            };
            let key = path.iter().map(|k| quoted(k)).collect::<Vec<_>>().join(".");
            match value {
                Value::Array(entries) if !entries.is_empty() => {
                    let mut start = 0;
                    for run in origins.chunk_by(PartialEq::eq) {
                        let end = (start + run.len()).min(entries.len());
                        rows.push(Row {
                            key: key.clone(),
                            value: Value::Array(entries[start..end].to_vec()),
                            origin: run[0].clone(),
                        });
                        start = end;
                    }
                }
                value => rows.push(Row {
                    key,
                    value: value.clone(),
                    origin: origins.last().cloned().unwrap_or(Origin::Default),
                }),
            }
        }
        rows
    }
}

/// The defaults as a table. Parsed once; a broken one would fail every test.
pub(super) fn default_table() -> Result<&'static Table, ConfigError> {
    static TABLE: OnceLock<Result<Table, String>> = OnceLock::new();
    TABLE
        .get_or_init(|| DEFAULTS.parse().map_err(|e: toml::de::Error| syntax(&e)))
        .as_ref()
        .map_err(|message| ConfigError::Value {
            origin: Origin::Default,
            message: message.clone(),
        })
}

/// Refuses keys that the defaults do not have, and values of another type.
pub(super) fn check_known(
    table: &Table,
    known: &Table,
    origin: &Origin,
) -> Result<(), ConfigError> {
    check_below(table, known, origin, "")
}

fn check_below(
    table: &Table,
    known: &Table,
    origin: &Origin,
    above: &str,
) -> Result<(), ConfigError> {
    for (key, value) in table {
        let full = if above.is_empty() {
            key.clone()
        } else {
            format!("{above}.{key}")
        };
        let Some(standard) = known.get(key) else {
            let similar = nearest(key, known.keys().map(String::as_str));
            return Err(ConfigError::UnknownKey {
                origin: origin.clone(),
                key: full,
                nearest: similar.map(|similar| {
                    if above.is_empty() {
                        similar.to_owned()
                    } else {
                        format!("{above}.{similar}")
                    }
                }),
            });
        };
        match (value, standard) {
            (Value::Table(inner), Value::Table(known)) => {
                if !FREE_TABLES.contains(&full.as_str()) {
                    check_below(inner, known, origin, &full)?;
                }
            }
            (value, standard) if value.same_type(standard) => {}
            (value, standard) => {
                return Err(ConfigError::Value {
                    origin: origin.clone(),
                    message: format!(
                        "{full} is to be {}, not {}",
                        type_name(standard),
                        type_name(value)
                    ),
                });
            }
        }
    }
    Ok(())
}

/// What becomes of lists when a layer names one again.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lists {
    Replace,
    Add,
}

#[derive(Default)]
struct Merged {
    table: Table,
    origins: BTreeMap<Vec<String>, Vec<Origin>>,
}

impl Merged {
    /// Lays `table` over what is there. The result is checked at once, so that a value that does
    /// not fit is blamed on the layer that brought it.
    fn add(&mut self, table: &Table, origin: &Origin, lists: Lists) -> Result<(), ConfigError> {
        check_known(table, default_table()?, origin)?;
        super::rules::check(table, origin)?;
        lay(
            &mut self.table,
            table,
            &mut Vec::new(),
            &mut self.origins,
            origin,
            lists,
        );
        deserialize(&self.table, origin).map(drop)
    }
}

fn lay(
    onto: &mut Table,
    table: &Table,
    path: &mut Vec<String>,
    origins: &mut BTreeMap<Vec<String>, Vec<Origin>>,
    origin: &Origin,
    lists: Lists,
) {
    for (key, value) in table {
        path.push(key.clone());
        match (onto.get_mut(key), value) {
            (Some(Value::Table(inner)), Value::Table(value)) => {
                lay(inner, value, path, origins, origin, lists);
            }
            (None, Value::Table(value)) => {
                let mut inner = Table::new();
                lay(&mut inner, value, path, origins, origin, lists);
                onto.insert(key.clone(), Value::Table(inner));
            }
            (Some(Value::Array(entries)), Value::Array(more)) if lists == Lists::Add => {
                if !entries.is_empty() || !more.is_empty() {
                    let known = origins.entry(path.clone()).or_default();
                    known.truncate(entries.len());
                    known.extend(more.iter().map(|_| origin.clone()));
                    entries.extend(more.iter().cloned());
                }
            }
            (_, value) => {
                let count = value.as_array().map_or(1, |entries| entries.len().max(1));
                origins.insert(path.clone(), vec![origin.clone(); count]);
                onto.insert(key.clone(), value.clone());
            }
        }
        path.pop();
    }
}

fn deserialize(table: &Table, origin: &Origin) -> Result<Config, ConfigError> {
    Config::deserialize(table.clone()).map_err(|error| ConfigError::Value {
        origin: origin.clone(),
        message: visible(error.to_string().trim_end().as_bytes()).into_owned(),
    })
}

fn read_user(path: &Path) -> Result<Option<Table>, ConfigError> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(source) => {
            return Err(ConfigError::Read {
                path: path.into(),
                source,
            });
        }
    };
    text.parse().map(Some).map_err(|error| ConfigError::Syntax {
        path: path.into(),
        message: syntax(&error),
    })
}

type Variable = (String, (String, Value));

/// The settings in the environment: every key that holds a single value has a variable.
fn variables(environment: &Environment) -> Result<Vec<Variable>, ConfigError> {
    let known: BTreeMap<String, (&String, &Value)> = default_table()?
        .iter()
        .filter(|(_, value)| value.is_str() || value.is_integer() || value.is_bool())
        .map(|(key, value)| (format!("{PREFIX}{}", key.to_uppercase()), (key, value)))
        .collect();
    let mut found = Vec::new();
    for (name, value) in environment {
        let Some(name) = name.to_str().filter(|name| name.starts_with(PREFIX)) else {
            continue;
        };
        if NOT_SETTINGS.contains(&name) || value.is_empty() {
            continue;
        }
        let origin = Origin::Environment(name.to_owned());
        let Some((key, standard)) = known.get(name) else {
            let similar = known.keys().map(String::as_str).chain(NOT_SETTINGS);
            return Err(ConfigError::UnknownKey {
                origin: Origin::Environment("the environment".into()),
                key: name.to_owned(),
                nearest: nearest(name, similar).map(Into::into),
            });
        };
        found.push((
            name.to_owned(),
            ((*key).clone(), typed(value, standard, origin)?),
        ));
    }
    Ok(found)
}

fn typed(value: &OsStr, standard: &Value, origin: Origin) -> Result<Value, ConfigError> {
    let text = value.to_str();
    if standard.is_integer() {
        return text
            .and_then(|text| text.parse().ok())
            .map(Value::Integer)
            .ok_or_else(|| ConfigError::Value {
                origin,
                message: format!("{} is no whole number", visible(value.as_encoded_bytes())),
            });
    }
    if standard.is_bool() {
        return text
            .and_then(|text| text.parse().ok())
            .map(Value::Boolean)
            .ok_or_else(|| ConfigError::Value {
                origin,
                message: format!(
                    "{} is neither true nor false",
                    visible(value.as_encoded_bytes())
                ),
            });
    }
    text.map(|text| Value::String(text.into()))
        .ok_or_else(|| ConfigError::Value {
            origin,
            message: format!("{} is not UTF-8 text", visible(value.as_encoded_bytes())),
        })
}

fn lookup<'a>(table: &'a Table, path: &[String]) -> Option<&'a Value> {
    let (first, rest) = path.split_first()?;
    let value = table.get(first)?;
    if rest.is_empty() {
        Some(value)
    } else {
        lookup(value.as_table()?, rest)
    }
}

fn quoted(key: &str) -> String {
    let bare = !key.is_empty()
        && key
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'));
    if bare {
        key.to_owned()
    } else {
        Value::String(key.into()).to_string()
    }
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::String(_) => "a text",
        Value::Integer(_) => "a whole number",
        Value::Float(_) => "a number",
        Value::Boolean(_) => "true or false",
        Value::Datetime(_) => "a time",
        Value::Array(_) => "a list",
        Value::Table(_) => "a table",
    }
}
