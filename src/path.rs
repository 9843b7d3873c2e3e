//! Paths inside a layer, as exact bytes. Owns their validity: no absolute path, no empty, `.` or
//! `..` component and no NUL can be held, so joining one to a layer root never climbs out of it.
//! Does no I/O and does not print: what is shown goes through [`crate::text`].

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use base64::Engine as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A path relative to a layer's root, in bytes. The empty path is the root itself. A clone shares
/// the bytes: one path stands in many places of a session.
///
/// Ordered by bytes, so a directory sorts before what lies in it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct RelPath(Arc<[u8]>);

/// Why some bytes are not a path below a layer's root.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// The path begins with a slash.
    #[error("the path is absolute")]
    Absolute,
    /// A component is `.`, `..` or empty.
    #[error("the path has an empty, `.` or `..` component")]
    Component,
    /// The path holds a NUL byte.
    #[error("the path holds a NUL byte")]
    Nul,
}

impl RelPath {
    /// The root of a layer.
    pub fn root() -> Self {
        Self::default()
    }

    /// Takes exact bytes; trailing slashes are not accepted.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Result<Self, PathError> {
        let bytes = bytes.into();
        if bytes.is_empty() {
            return Ok(Self::default());
        }
        if bytes[0] == b'/' {
            return Err(PathError::Absolute);
        }
        if bytes.contains(&0) {
            return Err(PathError::Nul);
        }
        if bytes
            .split(|b| *b == b'/')
            .any(|c| c.is_empty() || c == b"." || c == b"..")
        {
            return Err(PathError::Component);
        }
        Ok(Self(bytes.into()))
    }

    /// What a person typed: leading `./`, doubled and trailing slashes are forgiven.
    pub fn parse(typed: &[u8]) -> Result<Self, PathError> {
        if typed.first() == Some(&b'/') {
            return Err(PathError::Absolute);
        }
        let parts: Vec<&[u8]> = typed
            .split(|b| *b == b'/')
            .filter(|c| !c.is_empty() && *c != b".")
            .collect();
        Self::new(parts.join(&b'/'))
    }

    /// The path of `name` in this directory.
    pub fn join(&self, name: &[u8]) -> Self {
        debug_assert!(!name.is_empty() && !name.contains(&b'/'));
        if self.is_root() {
            return Self(name.into());
        }
        Self([&self.0, name].join(&b'/').into())
    }

    /// This path placed below `base` (the root stays `base`).
    pub fn under(&self, base: &RelPath) -> Self {
        if self.is_root() {
            return base.clone();
        }
        base.join_path(self)
    }

    fn join_path(&self, tail: &RelPath) -> Self {
        if self.is_root() {
            return tail.clone();
        }
        Self([&*self.0, &*tail.0].join(&b'/').into())
    }

    /// The directory that holds this path; `None` for the root.
    pub fn parent(&self) -> Option<Self> {
        if self.is_root() {
            return None;
        }
        let cut = self.0.iter().rposition(|b| *b == b'/').unwrap_or(0);
        Some(Self(self.0[..cut].into()))
    }

    /// The last component; `None` for the root.
    pub fn file_name(&self) -> Option<&[u8]> {
        if self.is_root() {
            None
        } else {
            self.0.rsplit(|b| *b == b'/').next()
        }
    }

    /// The components in order.
    pub fn components(&self) -> impl Iterator<Item = &[u8]> {
        self.0.split(|b| *b == b'/').filter(|c| !c.is_empty())
    }

    /// Whether this is `dir` or lies below it.
    pub fn is_within(&self, dir: &RelPath) -> bool {
        dir.is_root()
            || self.0 == dir.0
            || (self.0.starts_with(&dir.0) && self.0.get(dir.0.len()) == Some(&b'/'))
    }

    /// Every directory above this path, nearest first, the root last.
    pub fn ancestors(&self) -> impl Iterator<Item = RelPath> {
        std::iter::successors(self.parent(), RelPath::parent)
    }

    /// Whether this is the layer's root.
    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// Number of components.
    pub fn depth(&self) -> usize {
        self.components().count()
    }

    /// The exact bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The path as the standard library takes it.
    pub fn as_path(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.0))
    }

    /// The path as text when it is UTF-8.
    pub fn as_utf8(&self) -> Option<&str> {
        std::str::from_utf8(&self.0).ok()
    }
}

impl fmt::Debug for RelPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}

impl fmt::Display for RelPath {
    /// The sanitised text (see [`crate::text::visible`]): safe for a terminal, not reversible.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&crate::text::visible(&self.0))
    }
}

impl TryFrom<&str> for RelPath {
    type Error = PathError;
    fn try_from(text: &str) -> Result<Self, PathError> {
        Self::new(text.as_bytes())
    }
}

/// In JSON a string, or `{"b64": "..."}` when the bytes are not UTF-8; on the wire plain bytes.
impl Serialize for RelPath {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serialize_bytes(&self.0, serializer)
    }
}

impl<'de> Deserialize<'de> for RelPath {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let bytes = deserialize_bytes(deserializer)?;
        RelPath::new(bytes).map_err(serde::de::Error::custom)
    }
}

/// Exact bytes that travel like a [`RelPath`]: text in JSON where they are UTF-8.
pub mod exact_bytes {
    use super::{Deserializer, Serializer};

    /// See [`super::RelPath`].
    pub fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        super::serialize_bytes(bytes, serializer)
    }

    /// See [`super::RelPath`].
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        super::deserialize_bytes(deserializer)
    }
}

/// A path that travels as its exact bytes: serde's own form of a path refuses what is not UTF-8.
pub mod exact_path {
    use std::ffi::OsString;
    use std::os::unix::ffi::{OsStrExt, OsStringExt};
    use std::path::{Path, PathBuf};

    use super::{Deserializer, Serializer};

    /// See [`super::RelPath`].
    pub fn serialize<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
        super::serialize_bytes(path.as_os_str().as_bytes(), serializer)
    }

    /// See [`super::RelPath`].
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PathBuf, D::Error> {
        super::deserialize_bytes(deserializer).map(|bytes| OsString::from_vec(bytes).into())
    }
}

/// Bytes that may be absent and travel like [`exact_bytes`].
pub mod optional_bytes {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Deserialize)]
    struct Exact(#[serde(with = "crate::path::exact_bytes")] Vec<u8>);

    struct Borrowed<'a>(&'a [u8]);

    impl Serialize for Borrowed<'_> {
        fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
            super::serialize_bytes(self.0, s)
        }
    }

    /// See [`super::RelPath`].
    #[allow(
        clippy::ref_option,
        reason = "serde's `with` passes a reference to the field"
    )]
    pub fn serialize<S: Serializer>(v: &Option<Vec<u8>>, s: S) -> Result<S::Ok, S::Error> {
        v.as_deref().map(Borrowed).serialize(s)
    }

    /// See [`super::RelPath`].
    pub fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Vec<u8>>, D::Error> {
        Ok(Option::<Exact>::deserialize(d)?.map(|e| e.0))
    }
}

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum TextOrBase64 {
    Text(String),
    Base64 { b64: String },
}

fn serialize_bytes<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    if !serializer.is_human_readable() {
        return serializer.serialize_bytes(bytes);
    }
    match std::str::from_utf8(bytes) {
        Ok(text) => serializer.serialize_str(text),
        Err(_) => TextOrBase64::Base64 {
            b64: base64::engine::general_purpose::STANDARD.encode(bytes),
        }
        .serialize(serializer),
    }
}

fn deserialize_bytes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    if !deserializer.is_human_readable() {
        struct Bytes;
        impl serde::de::Visitor<'_> for Bytes {
            type Value = Vec<u8>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("bytes")
            }
            fn visit_bytes<E>(self, v: &[u8]) -> Result<Vec<u8>, E> {
                Ok(v.to_vec())
            }
            fn visit_byte_buf<E>(self, v: Vec<u8>) -> Result<Vec<u8>, E> {
                Ok(v)
            }
        }
        return deserializer.deserialize_byte_buf(Bytes);
    }
    match TextOrBase64::deserialize(deserializer)? {
        TextOrBase64::Text(text) => Ok(text.into_bytes()),
        TextOrBase64::Base64 { b64 } => base64::engine::general_purpose::STANDARD
            .decode(b64)
            .map_err(serde::de::Error::custom),
    }
}

/// A path in a named layer: the key of a change.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LayerPath {
    /// The layer's name, `workspace` or `home` by default.
    pub layer: String,
    /// The path below the layer's root.
    pub path: RelPath,
}

impl LayerPath {
    /// A path in `layer`.
    pub fn new(layer: impl Into<String>, path: RelPath) -> Self {
        Self {
            layer: layer.into(),
            path,
        }
    }
}

impl fmt::Display for LayerPath {
    /// Sanitised; the workspace's paths stand alone, others carry their layer.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.layer != crate::layer::WORKSPACE {
            write!(f, "{}:", crate::text::visible(self.layer.as_bytes()))?;
        }
        if self.path.is_root() {
            f.write_str(".")
        } else {
            write!(f, "{}", self.path)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_paths_below_the_root_can_be_held() {
        assert_eq!(RelPath::new(*b"/a"), Err(PathError::Absolute));
        assert_eq!(RelPath::new(*b"a/../b"), Err(PathError::Component));
        assert_eq!(RelPath::new(*b"a//b"), Err(PathError::Component));
        assert_eq!(
            RelPath::parse(b"./a//b/").map(|p| p.as_bytes().to_vec()),
            Ok(b"a/b".to_vec())
        );
    }

    #[test]
    fn bytes_that_are_not_text_survive_json_and_wire() {
        let path = RelPath::new(*b"\xff/a").expect("valid");
        let json = serde_json::to_string(&path).expect("json");
        assert_eq!(json, r#"{"b64":"/y9h"}"#);
        assert_eq!(serde_json::from_str::<RelPath>(&json).expect("back"), path);
        let wire = postcard::to_stdvec(&path).expect("wire");
        assert_eq!(postcard::from_bytes::<RelPath>(&wire).expect("back"), path);
    }

    #[test]
    fn containment_respects_component_ends() {
        let dir = RelPath::try_from("a/b").expect("valid");
        assert!(RelPath::try_from("a/b/c").expect("valid").is_within(&dir));
        assert!(!RelPath::try_from("a/bc").expect("valid").is_within(&dir));
        assert_eq!(dir.ancestors().count(), 2);
    }
}
