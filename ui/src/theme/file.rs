//! The form of a theme's file, and what an entry of it comes to.

use std::collections::BTreeMap;

use ratatui::style::{Modifier, Style};
use serde::Deserialize;

use super::color::{self, Depth, Paint};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    pub(super) inherits: Option<String>,
    #[serde(default)]
    pub(super) palette: BTreeMap<String, Written>,
    #[serde(default)]
    pub(super) scopes: BTreeMap<String, Entry>,
}

/// `"#rrggbb"`, a name, or both: the true colour and what stands for it among 16.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub(super) enum Written {
    One(String),
    Two([String; 2]),
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Entry {
    fg: Option<Written>,
    bg: Option<Written>,
    #[serde(default)]
    add: Vec<String>,
    /// Added where there are no colours.
    #[serde(default)]
    mono: Vec<String>,
}

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Look {
    pub(super) fg: Option<Paint>,
    pub(super) bg: Option<Paint>,
    add: Modifier,
    mono: Modifier,
}

impl Written {
    fn paint(&self, palette: &BTreeMap<String, Written>) -> Result<Paint, String> {
        let parse = |text: &str| {
            Paint::parse(text)
                .ok_or_else(|| format!("`{text}` is neither a colour nor in the palette."))
        };
        match self {
            Written::One(name) => match palette.get(name) {
                Some(Written::One(text)) => parse(text),
                Some(two @ Written::Two(_)) => two.paint(palette),
                None => parse(name),
            },
            Written::Two([rgb, name]) => {
                let basic = color::basic(name)
                    .ok_or_else(|| format!("`{name}` is not one of the 16 colours."))?;
                Ok(Paint {
                    basic,
                    ..parse(rgb)?
                })
            }
        }
    }
}

impl Entry {
    pub(super) fn look(&self, palette: &BTreeMap<String, Written>) -> Result<Look, String> {
        let paint = |w: &Option<Written>| w.as_ref().map(|w| w.paint(palette)).transpose();
        Ok(Look {
            fg: paint(&self.fg)?,
            bg: paint(&self.bg)?,
            add: modifiers(&self.add)?,
            mono: modifiers(&self.mono)?,
        })
    }
}

fn modifiers(names: &[String]) -> Result<Modifier, String> {
    names.iter().try_fold(Modifier::empty(), |sum, name| {
        Ok(sum
            | match name.as_str() {
                "bold" => Modifier::BOLD,
                "dim" => Modifier::DIM,
                "italic" => Modifier::ITALIC,
                "underlined" => Modifier::UNDERLINED,
                "reversed" => Modifier::REVERSED,
                other => return Err(format!("`{other}` is not a modifier.")),
            })
    })
}

impl Look {
    pub(super) fn style(self, depth: Depth) -> Style {
        let mut style = Style::new().add_modifier(self.add);
        if depth == Depth::None {
            return style.add_modifier(self.mono);
        }
        style.fg = self.fg.and_then(|p| p.at(depth));
        style.bg = self.bg.and_then(|p| p.at(depth));
        style
    }
}
