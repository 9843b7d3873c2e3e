//! Rules, questions and answers as JSON.

use pvisor::policy::{Answer, Rule, access_word};
use pvisor::session::state::{Ask, Remark, SessionState};
use serde::Serialize;

use super::{PathInfo, text_and_bytes, time};

/// What stands between the agent and its files.
#[derive(Debug, Serialize)]
pub struct GuardInfo {
    /// The rules in force.
    pub rules: Vec<RuleInfo>,
    /// Remembered answers.
    pub answers: Vec<AnswerInfo>,
    /// Operations that wait for a person.
    pub asks: Vec<AskInfo>,
    /// What `warn` and `deny` rules remarked last.
    pub remarks: Vec<RemarkInfo>,
    /// Remarks that are not listed.
    pub more_remarks: u64,
}

/// One rule.
#[derive(Debug, Serialize)]
pub struct RuleInfo {
    /// `deny`, `ask` or `warn`.
    pub level: &'static str,
    /// As it was written.
    pub glob: String,
    /// `built-in`, `user`, `workspace` or `session`.
    pub origin: &'static str,
}

/// One remembered answer.
#[derive(Debug, Serialize)]
pub struct AnswerInfo {
    /// What was said.
    pub allow: bool,
    /// `session`, `workspace` or `user`.
    pub scope: &'static str,
    /// The path, `DIR/**`, or `*.suffix`.
    pub about: String,
    /// Exact bytes of `about`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub about_b64: Option<String>,
}

/// One operation that waits.
#[derive(Debug, Serialize)]
pub struct AskInfo {
    /// Its number, for `allow` and `deny`.
    pub ask: u64,
    /// Where.
    #[serde(flatten)]
    pub path: PathInfo,
    /// `look up`, `list`, `read`, `write`, `create` or `remove`.
    pub access: &'static str,
    /// Process id on the host; 0 when unknown.
    pub pid: u32,
    /// Its program's name, lossy.
    pub program: String,
    /// Glob of the rule.
    pub rule: String,
    /// Since when, RFC 3339.
    pub at: String,
    /// When it counts as denied, RFC 3339.
    pub until: String,
}

/// One remark.
#[derive(Debug, Serialize)]
pub struct RemarkInfo {
    /// `deny` or `warn`.
    pub level: &'static str,
    /// Where.
    #[serde(flatten)]
    pub path: PathInfo,
    /// What was attempted.
    pub access: &'static str,
    /// Its program's name, lossy.
    pub program: String,
    /// Glob of the rule.
    pub rule: String,
    /// When, RFC 3339.
    pub at: String,
}

impl GuardInfo {
    /// Of a running session's state.
    pub fn new(state: Option<&SessionState>) -> Self {
        let empty = SessionState::default();
        let state = state.unwrap_or(&empty);
        Self {
            rules: state.rules.iter().map(RuleInfo::from).collect(),
            answers: state.answers.iter().map(AnswerInfo::from).collect(),
            asks: state.asks.values().map(AskInfo::from).collect(),
            remarks: state.remarks.iter().map(RemarkInfo::from).collect(),
            more_remarks: state.more_remarks,
        }
    }
}

impl From<&Rule> for RuleInfo {
    fn from(rule: &Rule) -> Self {
        Self {
            level: rule.level.name(),
            glob: rule.glob.clone(),
            origin: rule.origin.name(),
        }
    }
}

impl From<&Answer> for AnswerInfo {
    fn from(answer: &Answer) -> Self {
        let (about, about_b64) = text_and_bytes(&answer.subject.shown());
        Self {
            allow: answer.allow,
            scope: answer.origin.name(),
            about,
            about_b64,
        }
    }
}

impl From<&Ask> for AskInfo {
    fn from(ask: &Ask) -> Self {
        Self {
            ask: ask.id,
            path: (&ask.what.key).into(),
            access: access_word(ask.what.access),
            pid: ask.what.pid,
            program: ask.what.program.clone(),
            rule: ask.what.glob.clone(),
            at: time(ask.at),
            until: time(ask.until),
        }
    }
}

impl From<&Remark> for RemarkInfo {
    fn from(remark: &Remark) -> Self {
        Self {
            level: remark.level.name(),
            path: (&remark.what.key).into(),
            access: access_word(remark.what.access),
            program: remark.what.program.clone(),
            rule: remark.what.glob.clone(),
            at: time(remark.at),
        }
    }
}
