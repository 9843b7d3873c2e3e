//! `changes --json` as tests read it.

use serde_json::Value;

/// One answer of `changes --json`.
#[derive(Debug, Clone)]
pub struct Changes {
    /// The whole answer.
    pub json: Value,
}

impl Changes {
    /// Checks the frame of the answer, not its content.
    #[track_caller]
    pub fn from_json(json: Value) -> Self {
        for field in ["session", "state", "layers", "counts", "changes"] {
            assert!(
                json.get(field).is_some(),
                "changes --json has no {field}: {json}"
            );
        }
        Self { json }
    }

    /// Every change as `kind path`, `home:` before those of the home layer, sorted; a rename as
    /// `renamed old -> new`.
    pub fn lines(&self) -> Vec<String> {
        let mut lines: Vec<String> = self.all().map(line).collect();
        lines.sort();
        lines
    }

    /// [`Changes::lines`] of the plain class in the workspace.
    pub fn plain(&self) -> Vec<String> {
        let mut lines: Vec<String> = self
            .all()
            .filter(|c| c["class"] == "plain" && c["layer"] == "workspace")
            .map(line)
            .collect();
        lines.sort();
        lines
    }

    /// Demands exactly these plain changes of the workspace.
    #[track_caller]
    pub fn assert_plain(&self, expected: &[&str]) {
        let mut expected: Vec<String> = expected.iter().map(ToString::to_string).collect();
        expected.sort();
        assert_eq!(self.plain(), expected, "changes: {:#}", self.json);
    }

    /// The change at a path of the workspace (a rename by its new name).
    pub fn find(&self, path: &str) -> Option<&Value> {
        self.all()
            .find(|c| c["path"] == path && c["layer"] == "workspace")
    }

    /// [`Changes::find`] of what must be there.
    #[track_caller]
    pub fn get(&self, path: &str) -> &Value {
        self.find(path)
            .unwrap_or_else(|| panic!("no change at {path}: {:?}", self.lines()))
    }

    /// The ids of a change's items of one kind.
    #[track_caller]
    pub fn items(&self, path: &str, kind: &str) -> Vec<String> {
        let items = self.get(path)["items"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        items
            .iter()
            .filter(|item| item["kind"] == kind)
            .map(|item| item["id"].as_str().expect("an id").to_owned())
            .collect()
    }

    /// Whether a change's risks hold this word.
    #[track_caller]
    pub fn has_risk(&self, path: &str, risk: &str) -> bool {
        let risks = self.get(path)["risks"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        risks.iter().any(|r| r == risk)
    }

    /// All changes.
    pub fn all(&self) -> impl Iterator<Item = &Value> {
        self.json["changes"].as_array().into_iter().flatten()
    }
}

fn line(change: &Value) -> String {
    let text = |field: &str| change[field].as_str().unwrap_or("?").to_owned();
    let layer = match text("layer").as_str() {
        "workspace" => String::new(),
        other => format!("{other}:"),
    };
    match change.get("from").and_then(Value::as_str) {
        Some(from) => format!("{} {layer}{from} -> {}", text("kind"), text("path")),
        None => format!("{} {layer}{}", text("kind"), text("path")),
    }
}
