//! The keymap: which key means which action where. Owns the notation of keys and the bindings made
//! from the action table and a person's overrides; does nothing itself.
//!
//! Notation: `j`, `G`, `ctrl-d`, `alt-x`, `shift-tab`, `space`, `enter`, `f2`; two keys in a row
//! are parted by a blank (`z z`).

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use crate::action::{Action, Context, Entry, Name, TABLE};
use crate::input::Input;

/// One key with its modifiers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Key {
    code: KeyCode,
    modifiers: KeyModifiers,
}

/// Why a keymap cannot be made of what a person wrote.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeymapError {
    /// No such action.
    #[error("no action is named `{0}`{1}.")]
    Action(String, String),
    /// No such key.
    #[error("`{key}` for the action `{action}` is not a key: write `j`, `ctrl-d`, `f2` or `z z`.")]
    Key {
        /// The action.
        action: String,
        /// What was written.
        key: String,
    },
    /// Two actions want one key in one place.
    #[error("`{key}` is bound to both `{first}` and `{second}`: give one of them another key.")]
    Twice {
        /// The key.
        key: String,
        /// The one.
        first: &'static str,
        /// The other.
        second: &'static str,
    },
}

const NAMED: &[(&str, KeyCode)] = &[
    ("space", KeyCode::Char(' ')),
    ("enter", KeyCode::Enter),
    ("esc", KeyCode::Esc),
    ("tab", KeyCode::Tab),
    ("backspace", KeyCode::Backspace),
    ("delete", KeyCode::Delete),
    ("insert", KeyCode::Insert),
    ("up", KeyCode::Up),
    ("down", KeyCode::Down),
    ("left", KeyCode::Left),
    ("right", KeyCode::Right),
    ("home", KeyCode::Home),
    ("end", KeyCode::End),
    ("pageup", KeyCode::PageUp),
    ("pagedown", KeyCode::PageDown),
];

impl Key {
    /// Reads one key in the notation above.
    pub fn parse(text: &str) -> Option<Self> {
        let mut modifiers = KeyModifiers::NONE;
        let mut rest = text;
        loop {
            let (modifier, prefix) = if rest.starts_with("ctrl-") {
                (KeyModifiers::CONTROL, 5)
            } else if rest.starts_with("alt-") {
                (KeyModifiers::ALT, 4)
            } else if rest.starts_with("shift-") {
                (KeyModifiers::SHIFT, 6)
            } else {
                break;
            };
            if rest.len() == prefix {
                return None;
            }
            modifiers |= modifier;
            rest = &rest[prefix..];
        }
        let mut chars = rest.chars();
        let code = match (chars.next(), chars.next()) {
            (Some(c), None) => KeyCode::Char(c),
            _ => match NAMED.iter().find(|(name, _)| *name == rest) {
                Some((_, code)) => *code,
                None => KeyCode::F(
                    rest.strip_prefix('f')?
                        .parse()
                        .ok()
                        .filter(|n| (1..=24).contains(n))?,
                ),
            },
        };
        Some(Self::normal(code, modifiers))
    }

    /// A terminal's key.
    pub fn of(event: &KeyEvent) -> Self {
        Self::normal(event.code, event.modifiers)
    }

    /// One spelling for what terminals report in several ways.
    fn normal(code: KeyCode, modifiers: KeyModifiers) -> Self {
        let mut modifiers =
            modifiers & (KeyModifiers::CONTROL | KeyModifiers::ALT | KeyModifiers::SHIFT);
        let mut code = code;
        match code {
            KeyCode::BackTab => {
                code = KeyCode::Tab;
                modifiers |= KeyModifiers::SHIFT;
            }
            // The character already says whether shift was held.
            KeyCode::Char(c) => {
                if modifiers.contains(KeyModifiers::CONTROL) {
                    // A terminal sends one byte for `^]` and `^5`.
                    let c = if c == '5' {
                        ']'
                    } else {
                        c.to_ascii_lowercase()
                    };
                    code = KeyCode::Char(c);
                } else if modifiers.contains(KeyModifiers::SHIFT) {
                    code = KeyCode::Char(c.to_ascii_uppercase());
                }
                modifiers -= KeyModifiers::SHIFT;
            }
            _ => {}
        }
        Self { code, modifiers }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (modifier, name) in [
            (KeyModifiers::CONTROL, "ctrl-"),
            (KeyModifiers::ALT, "alt-"),
            (KeyModifiers::SHIFT, "shift-"),
        ] {
            if self.modifiers.contains(modifier) {
                f.write_str(name)?;
            }
        }
        match self.code {
            KeyCode::F(n) => write!(f, "f{n}"),
            code => match NAMED.iter().find(|(_, c)| *c == code) {
                Some((name, _)) => f.write_str(name),
                None => match code {
                    KeyCode::Char(c) => write!(f, "{c}"),
                    _ => f.write_str("?"),
                },
            },
        }
    }
}

/// A key, or two in a row.
type Chord = Vec<Key>;

/// What an input means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Meaning {
    /// This.
    Action(Action),
    /// The first of two keys; the second decides.
    Pending(KeyEvent),
    /// Nothing.
    Nothing,
}

/// The bindings in force.
#[derive(Debug, Clone)]
pub struct Keymap {
    bindings: HashMap<Context, HashMap<Chord, Name>>,
    keys: BTreeMap<Name, Vec<Chord>>,
}

impl Default for Keymap {
    fn default() -> Self {
        // The table is checked by a test; what would not parse is simply not bound.
        Self::build(&BTreeMap::new(), false).unwrap_or_else(|_| Self {
            bindings: HashMap::new(),
            keys: BTreeMap::new(),
        })
    }
}

impl Keymap {
    /// The table's keys, with these in place of them: action id to keys; no keys unbinds it.
    /// The way out of the agent's terminal cannot be unbound.
    pub fn new(overrides: &BTreeMap<String, Vec<String>>) -> Result<Self, KeymapError> {
        Self::build(overrides, true)
    }

    fn build(overrides: &BTreeMap<String, Vec<String>>, strict: bool) -> Result<Self, KeymapError> {
        for id in overrides.keys() {
            if Name::parse(id).is_none() {
                return Err(KeymapError::Action(id.clone(), nearest(id)));
            }
        }
        let mut map = Self {
            bindings: HashMap::new(),
            keys: BTreeMap::new(),
        };
        // A person's keys come first: a default that is in their way gives in.
        let (own, rest): (Vec<&Entry>, Vec<&Entry>) = TABLE
            .iter()
            .partition(|e| overrides.get(e.id).is_some_and(|k| !k.is_empty()));
        for entry in own {
            for key in &overrides[entry.id] {
                let chord = parse_chord(key).ok_or_else(|| KeymapError::Key {
                    action: entry.id.into(),
                    key: key.clone(),
                })?;
                map.bind(entry, chord, true)?;
            }
        }
        for entry in rest {
            let unbound = overrides.contains_key(entry.id);
            if unbound && entry.name != Name::LeaveAgent {
                continue;
            }
            for chord in entry.keys.iter().filter_map(|k| parse_chord(k)) {
                map.bind(entry, chord, strict && overrides.is_empty())?;
            }
        }
        Ok(map)
    }

    fn bind(&mut self, entry: &Entry, chord: Chord, strict: bool) -> Result<(), KeymapError> {
        let mut used = false;
        for context in entry.contexts {
            let there = self.bindings.entry(*context).or_default();
            match there.get(&chord) {
                Some(other) if *other != entry.name => {
                    if strict {
                        return Err(KeymapError::Twice {
                            key: show_chord(&chord),
                            first: other.entry().id,
                            second: entry.id,
                        });
                    }
                }
                _ => {
                    there.insert(chord.clone(), entry.name);
                    used = true;
                }
            }
        }
        let keys = self.keys.entry(entry.name).or_default();
        if used && !keys.contains(&chord) {
            keys.push(chord);
        }
        Ok(())
    }

    /// The keys of an action as they are shown.
    pub fn keys(&self, name: Name) -> Vec<String> {
        self.keys
            .get(&name)
            .map(|chords| chords.iter().map(|c| show_chord(c)).collect())
            .unwrap_or_default()
    }

    /// The first key of an action as it is shown, if it has one.
    pub fn key(&self, name: Name) -> Option<String> {
        self.keys.get(&name)?.first().map(|c| show_chord(c))
    }

    /// What `input` means in `context`, after `pending`, the first of two keys.
    pub fn meaning(&self, input: &Input, context: Context, pending: Option<&KeyEvent>) -> Meaning {
        let key = match input {
            Input::Key(key) => key,
            Input::Paste(text) => return Meaning::Action(Action::Paste(text.clone())),
            Input::Mouse(mouse) => return Meaning::Action(Action::Pointer(*mouse)),
            Input::Resize(size) => return Meaning::Action(Action::Resized(*size)),
            Input::Focus(focused) => return Meaning::Action(Action::Focused(*focused)),
        };
        let mut chord: Chord = pending.iter().map(|k| Key::of(k)).collect();
        chord.push(Key::of(key));
        if let Some(there) = self.bindings.get(&context) {
            if let Some(name) = there.get(&chord) {
                return Meaning::Action(Action::Do(*name));
            }
            if there
                .keys()
                .any(|c| c.len() > chord.len() && c.starts_with(&chord))
            {
                return Meaning::Pending(*key);
            }
        }
        if pending.is_some() && context != Context::Agent {
            return Meaning::Nothing;
        }
        match (context, key.code) {
            (Context::Agent, _) => Meaning::Action(Action::AgentKey(*key)),
            (Context::Text, KeyCode::Char(c))
                if !key
                    .modifiers
                    .intersects(KeyModifiers::CONTROL | KeyModifiers::ALT) =>
            {
                Meaning::Action(Action::Insert(c))
            }
            _ => Meaning::Action(Action::Unbound(*key)),
        }
    }
}

fn parse_chord(text: &str) -> Option<Chord> {
    let chord: Option<Chord> = text.split_whitespace().map(Key::parse).collect();
    chord.filter(|c| (1..=2).contains(&c.len()))
}

/// `zz` reads better than `z z`; longer names keep the blank.
fn show_chord(chord: &[Key]) -> String {
    let keys: Vec<String> = chord.iter().map(ToString::to_string).collect();
    let short = keys.iter().all(|k| k.chars().count() == 1);
    keys.join(if short { "" } else { " " })
}

/// The action with the longest common start, as a hint.
fn nearest(id: &str) -> String {
    let common = |other: &str| {
        id.bytes()
            .zip(other.bytes())
            .take_while(|(a, b)| a == b)
            .count()
    };
    TABLE
        .iter()
        .map(|e| (common(e.id), e.id))
        .max_by_key(|(n, _)| *n)
        .filter(|(n, _)| *n >= 2)
        .map(|(_, id)| format!("; did you mean `{id}`?"))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn press(text: &str) -> Input {
        let key = Key::parse(text).expect("a key");
        Input::Key(KeyEvent::new(key.code, key.modifiers))
    }

    #[test]
    fn every_default_key_parses_and_none_is_bound_twice() {
        for entry in TABLE {
            for key in entry.keys {
                assert!(parse_chord(key).is_some(), "{key} of {}", entry.id);
            }
        }
        let map = Keymap::new(&BTreeMap::new()).expect("no clash");
        for entry in TABLE {
            assert_eq!(
                map.keys(entry.name).len(),
                entry.keys.len(),
                "{} lost a key",
                entry.id
            );
        }
    }

    #[test]
    fn a_key_shows_as_it_is_written() {
        for text in [
            "j",
            "G",
            "ctrl-d",
            "shift-tab",
            "space",
            "f2",
            "ctrl-]",
            "alt-x",
        ] {
            assert_eq!(Key::parse(text).expect("a key").to_string(), text);
        }
        assert_eq!(Key::parse("ctrl-"), None);
        assert_eq!(Key::parse("f99"), None);
        assert_eq!(Key::parse("nosuch"), None);
    }

    #[test]
    fn two_keys_in_a_row_and_a_wrong_second_one() {
        let map = Keymap::default();
        let Meaning::Pending(first) = map.meaning(&press("z"), Context::Diff, None) else {
            panic!("z waits for its second key");
        };
        assert_eq!(
            map.meaning(&press("t"), Context::Diff, Some(&first)),
            Meaning::Action(Action::Do(Name::RowToTop))
        );
        assert_eq!(
            map.meaning(&press("space"), Context::Diff, Some(&first)),
            Meaning::Nothing
        );
    }

    #[test]
    fn the_agent_gets_everything_but_the_way_out() {
        let map = Keymap::default();
        for text in ["y", "q", "ctrl-c", "ctrl-z", "esc", "space", "P"] {
            assert!(matches!(
                map.meaning(&press(text), Context::Agent, None),
                Meaning::Action(Action::AgentKey(_))
            ));
        }
        assert_eq!(
            map.meaning(&press("ctrl-]"), Context::Agent, None),
            Meaning::Action(Action::Do(Name::LeaveAgent))
        );
        // What a terminal reports for the byte 0x1d.
        let five = KeyEvent::new(KeyCode::Char('5'), KeyModifiers::CONTROL);
        assert_eq!(
            map.meaning(&Input::Key(five), Context::Agent, None),
            Meaning::Action(Action::Do(Name::LeaveAgent))
        );
    }

    #[test]
    fn overrides_bind_unbind_and_refuse() {
        let overrides = |list: &[(&str, &[&str])]| {
            list.iter()
                .map(|(id, keys)| {
                    (
                        (*id).to_owned(),
                        keys.iter().map(|k| (*k).to_owned()).collect(),
                    )
                })
                .collect::<BTreeMap<String, Vec<String>>>()
        };
        let map = Keymap::new(&overrides(&[("reject", &["r"]), ("wrap", &[])])).expect("good");
        assert_eq!(map.keys(Name::Reject), ["r"]);
        assert!(map.keys(Name::Wrap).is_empty());
        // The way out stays.
        let map = Keymap::new(&overrides(&[("leave-agent", &[])])).expect("good");
        assert_eq!(map.keys(Name::LeaveAgent), ["ctrl-]"]);
        // A person's key takes the place of a default.
        let map = Keymap::new(&overrides(&[("wrap", &["j"])])).expect("good");
        assert_eq!(
            map.meaning(&press("j"), Context::Diff, None),
            Meaning::Action(Action::Do(Name::Wrap))
        );
        assert!(matches!(
            Keymap::new(&overrides(&[("aprove", &["a"])])),
            Err(KeymapError::Action(_, hint)) if hint.contains("approve")
        ));
        assert!(matches!(
            Keymap::new(&overrides(&[("wrap", &["hyper-x"])])),
            Err(KeymapError::Key { .. })
        ));
        assert!(matches!(
            Keymap::new(&overrides(&[("wrap", &["e"]), ("range", &["e"])])),
            Err(KeymapError::Twice { .. })
        ));
    }
}
