//! Actions: everything a person can ask of the screen, by name. Owns the one table from which the
//! keymap, the help page, the footer and the printed key list are made; does nothing itself.

use crossterm::event::{KeyEvent, MouseEvent};
use ratatui::layout::Size;

/// Where a key has its meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Context {
    /// The change list has the focus.
    Files,
    /// The diff has the focus.
    Diff,
    /// The agent's terminal has the focus.
    Agent,
    /// The log has the focus.
    Log,
    /// The help page is open.
    Help,
    /// A page that asks for consent is open.
    Confirm,
    /// The question how to leave is open.
    Quit,
    /// A question of a rule is put.
    Ask,
    /// The page of rules is open.
    Rules,
    /// A line of text is being typed.
    Text,
}

/// How the help page groups the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    /// Moving about.
    Move,
    /// Hunks, files, what is left to decide.
    Jump,
    /// Panes.
    Panes,
    /// Decisions and the commit.
    Decide,
    /// How things are shown.
    View,
    /// The agent's terminal.
    Agent,
    /// Pages that ask.
    Ask,
    /// Lines of text.
    Text,
    /// Leaving.
    Leave,
}

impl Group {
    /// Heading on the help page.
    pub fn title(self) -> &'static str {
        match self {
            Group::Move => "Move",
            Group::Jump => "Hunks and files",
            Group::Panes => "Panes",
            Group::Decide => "Decide",
            Group::View => "View",
            Group::Agent => "Agent's terminal",
            Group::Ask => "Pages that ask",
            Group::Text => "Lines of text",
            Group::Leave => "Leave",
        }
    }
}

/// One line of the table.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    /// The action.
    pub name: Name,
    /// Its name in configuration and on the command line (`:`).
    pub id: &'static str,
    /// Default keys, in the notation of [`crate::keymap`].
    pub keys: &'static [&'static str],
    /// Where the keys hold.
    pub contexts: &'static [Context],
    /// Heading on the help page.
    pub group: Group,
    /// What it does, one line.
    pub help: &'static str,
    /// Short word for the footer; empty when it is not listed there.
    pub hint: &'static str,
}

macro_rules! actions {
    ($($name:ident $id:literal [$($key:literal),*] $contexts:ident $group:ident $help:literal $hint:literal)*) => {
        /// A bindable action.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Name {
            $(#[doc = $help] $name,)*
        }

        /// Every bindable action, in the order of the help page.
        pub const TABLE: &[Entry] = &[$(Entry {
            name: Name::$name,
            id: $id,
            keys: &[$($key),*],
            contexts: $contexts,
            group: Group::$group,
            help: $help,
            hint: $hint,
        },)*];
    };
}

const SCROLL: &[Context] = &[
    Context::Files,
    Context::Diff,
    Context::Log,
    Context::Help,
    Context::Confirm,
    Context::Ask,
    Context::Rules,
];
const REVIEW: &[Context] = &[Context::Files, Context::Diff, Context::Log];
const CHOOSE: &[Context] = &[Context::Files, Context::Diff];
const DIFF: &[Context] = &[Context::Diff];
const FILES: &[Context] = &[Context::Files];
const AGENT: &[Context] = &[Context::Agent];
const BACK: &[Context] = &[
    Context::Files,
    Context::Diff,
    Context::Log,
    Context::Help,
    Context::Rules,
];
const RESCAN: &[Context] = &[Context::Files, Context::Diff, Context::Log, Context::Rules];
const NOT_AGENT: &[Context] = &[
    Context::Files,
    Context::Diff,
    Context::Log,
    Context::Help,
    Context::Confirm,
    Context::Quit,
    Context::Ask,
    Context::Rules,
    Context::Text,
];
const CALM: &[Context] = &[
    Context::Files,
    Context::Diff,
    Context::Log,
    Context::Help,
    Context::Confirm,
    Context::Quit,
    Context::Ask,
    Context::Rules,
];
const QUESTION: &[Context] = &[Context::Ask];
const RULES: &[Context] = &[Context::Rules];
const ASK: &[Context] = &[Context::Confirm];
const QUIT: &[Context] = &[Context::Quit];
const DENY: &[Context] = &[Context::Confirm, Context::Quit];
const TEXT: &[Context] = &[Context::Text];

actions! {
    Down "down" ["j", "down"] SCROLL Move "one row down" ""
    Up "up" ["k", "up"] SCROLL Move "one row up" ""
    HalfDown "half-page-down" ["ctrl-d"] SCROLL Move "half a page down" ""
    HalfUp "half-page-up" ["ctrl-u"] SCROLL Move "half a page up" ""
    PageDown "page-down" ["ctrl-f", "pagedown"] SCROLL Move "a page down" ""
    PageUp "page-up" ["ctrl-b", "pageup"] SCROLL Move "a page up" ""
    Top "top" ["g", "home"] SCROLL Move "to the first row" ""
    Bottom "bottom" ["G", "end"] SCROLL Move "to the last row" ""
    RowToMiddle "row-to-middle" ["z z"] CHOOSE Move "put the row in the middle" ""
    RowToTop "row-to-top" ["z t"] CHOOSE Move "put the row at the top" ""
    RowToBottom "row-to-bottom" ["z b"] CHOOSE Move "put the row at the bottom" ""
    Left "left" ["h", "left"] CHOOSE Move "fold the directory; move the diff sideways" ""
    Right "right" ["l", "right"] CHOOSE Move "open the directory; move the diff sideways" ""

    NextHunk "next-hunk" ["]", "J"] CHOOSE Jump "next hunk" ""
    PreviousHunk "previous-hunk" ["[", "K"] CHOOSE Jump "previous hunk" ""
    NextFile "next-file" ["}", "."] CHOOSE Jump "next file" ""
    PreviousFile "previous-file" ["{", ","] CHOOSE Jump "previous file" ""
    Next "next" ["n"] CHOOSE Jump "next match while searching, else next undecided" "next"
    Previous "previous" ["N"] CHOOSE Jump "previous match while searching, else previous undecided" ""
    Search "search" ["/"] CHOOSE Jump "search names or the diff" "search"

    NextPane "next-pane" ["tab"] REVIEW Panes "next pane" "pane"
    PreviousPane "previous-pane" ["shift-tab"] REVIEW Panes "previous pane" ""
    PaneFiles "pane-files" ["1"] REVIEW Panes "to the change list" ""
    PaneDiff "pane-diff" ["2"] REVIEW Panes "to the diff" ""
    PaneAgent "pane-agent" ["3"] REVIEW Panes "to the agent's terminal" ""
    PaneLog "pane-log" ["4"] REVIEW Panes "to the log" ""
    Zoom "zoom" ["+"] REVIEW Panes "give the pane the whole screen (then `3`: the agent's)" ""
    Unzoom "unzoom" ["_"] REVIEW Panes "back to all panes" ""

    Approve "approve" ["space"] CHOOSE Decide "approve, or take the approval back: line, hunk, file or directory by focus" "approve"
    ApproveNext "approve-next" ["enter"] CHOOSE Decide "approve and go on; open or fold a group" ""
    Reject "reject" ["x"] CHOOSE Decide "reject, with a reason if there is one" "reject"
    Reset "reset" ["-"] CHOOSE Decide "back to undecided" ""
    WholeFile "whole-file" ["A"] CHOOSE Decide "approve the whole file" ""
    LineOrHunk "line-or-hunk" ["a"] DIFF Decide "decide by line or by hunk" "line/hunk"
    Range "range" ["v"] DIFF Decide "mark a range of lines" "range"
    Undo "undo" ["u"] CHOOSE Decide "take the last decision back; after a commit: put back what it wrote (asks)" "undo"
    Redo "redo" ["ctrl-r"] CHOOSE Decide "make it again" ""
    Commit "commit" ["P"] REVIEW Decide "look at the plan and commit what is approved" "commit"
    UndoCommit "undo-commit" ["U"] REVIEW Decide "put back what the last commit wrote (asks)" ""
    Revert "revert" ["X"] CHOOSE Decide "take the change back in the agent's view (asks)" ""
    Resolve "resolve" ["r"] CHOOSE Decide "settle a conflict with the host in the agent's view (asks how)" ""

    Wrap "wrap" ["w"] DIFF View "wrap long lines" ""
    Invisibles "invisibles" ["i"] DIFF View "show blanks, tabs and line ends" ""
    SinceSeen "since-seen" ["L"] CHOOSE View "what the agent changed since you looked" ""
    Order "order" ["!"] FILES View "risk first, or by path" ""
    Refresh "refresh" ["R", "f5"] RESCAN View "scan again; on the page of rules: count again" ""
    Rules "rules" ["o"] REVIEW View "rules, questions that wait, answers, what was observed" ""
    Mouse "mouse" ["f2", "ctrl-o"] REVIEW View "mouse on or off (off lets the terminal select text)" "mouse"
    CommandLine "command-line" [":"] REVIEW View "run an action by name, or go to a line" ""
    Help "help" ["?", "f1"] REVIEW View "this page" "help"

    LeaveAgent "leave-agent" ["ctrl-]"] AGENT Agent "leave the agent's terminal" "leave the agent"
    ToAgent "to-agent" ["ctrl-]"] REVIEW Agent "back to the agent's terminal; right after leaving it, send it that key" ""
    AgentHistoryUp "agent-history-up" ["shift-pageup"] AGENT Agent "scroll the agent's history up" "history"
    AgentHistoryDown "agent-history-down" ["shift-pagedown"] AGENT Agent "scroll the agent's history down" ""

    Accept "accept" ["y"] ASK Ask "yes (only once the page was shown to its end and no key came for 0.4 s)" ""
    Merge "merge" ["m"] ASK Ask "plan the commit anew, with the host's edits and the agent's merged where they merge cleanly; of a conflict: put the merge into the agent's file" ""
    Ours "ours" ["o"] ASK Ask "of a conflict: the host's edits where edits meet" ""
    Theirs "theirs" ["t"] ASK Ask "of a conflict: the agent's edits where edits meet" ""
    Markers "markers" ["b"] ASK Ask "of a conflict: both between markers, in the agent's file only" ""
    EditConflict "edit-conflict" ["e"] ASK Ask "of a conflict: edit the merge in $VISUAL or $EDITOR" ""
    Deny "deny" ["n", "d", "esc", "q"] DENY Ask "no" ""

    AnswerAccess "answer-access" ["enter"] QUESTION Ask "answer a rule's question as marked (deny unless changed); once no key came for 0.4 s" ""
    AllowAccess "allow-access" ["y"] QUESTION Ask "allow what a rule asks about" ""
    DenyAccess "deny-access" ["d", "n"] QUESTION Ask "deny what a rule asks about" ""
    OtherAnswer "other-answer" ["tab", "h", "l", "left", "right"] QUESTION Ask "mark the other answer" ""
    AskLater "ask-later" ["esc", "q"] QUESTION Ask "decide later; the command goes on waiting" ""
    ForOnce "for-once" ["o"] QUESTION Ask "the answer holds for this operation" ""
    ForSession "for-session" ["s"] QUESTION Ask "the answer holds for this session" ""
    ForWorkspace "for-workspace" ["w"] QUESTION Ask "the answer holds in this workspace" ""
    ForUser "for-user" ["u"] QUESTION Ask "the answer holds in every session" ""
    AboutFile "about-file" ["1"] QUESTION Ask "the answer is about this path" ""
    AboutDirectory "about-directory" ["2"] QUESTION Ask "the answer is about everything in its directory" ""
    AboutSuffix "about-suffix" ["3"] QUESTION Ask "the answer is about every name with its suffix" ""
    OpenAsk "open-ask" ["enter"] RULES Ask "put the question under the cursor" ""
    Forget "forget" ["x"] RULES Ask "forget the answer under the cursor (twice)" ""

    AcceptText "accept-text" ["enter"] TEXT Text "done" "done"
    CancelText "cancel-text" ["esc", "ctrl-c"] TEXT Text "never mind" "never mind"
    Erase "erase" ["backspace", "ctrl-h"] TEXT Text "erase a character" ""
    EraseWord "erase-word" ["ctrl-w"] TEXT Text "erase a word" ""
    EraseLine "erase-line" ["ctrl-u"] TEXT Text "erase to the start" ""

    Quit "quit" ["q"] BACK Leave "close the page or zoom; at the top ask how to leave" "quit"
    Cancel "cancel" ["esc"] BACK Leave "one level back: range, search, page" ""
    Detach "detach" ["l"] QUIT Leave "leave; the agent goes on" ""
    StopAgent "stop-agent" ["s"] QUIT Leave "end the agent's command and stay" ""
    Discard "discard" ["T"] QUIT Leave "throw the staged side away (asks)" ""
    Suspend "suspend" ["ctrl-z"] NOT_AGENT Leave "suspend this screen; the agent goes on" ""
    Interrupt "interrupt" ["ctrl-c"] CALM Leave "nothing, on purpose" ""
}

impl Name {
    /// The table's line for it.
    pub fn entry(self) -> &'static Entry {
        // The enum and the table are made by one macro, in one order.
        &TABLE[self as usize]
    }

    /// The action with this id.
    pub fn parse(id: &str) -> Option<Self> {
        TABLE.iter().find(|e| e.id == id).map(|e| e.name)
    }
}

/// Something asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// An action of the table.
    Do(Name),
    /// A character for the line that is being typed.
    Insert(char),
    /// A key for the agent.
    AgentKey(KeyEvent),
    /// Pasted text; goes to a line of text or to the agent, never runs keys.
    Paste(String),
    /// The mouse.
    Pointer(MouseEvent),
    /// The terminal has another size.
    Resized(Size),
    /// The terminal gained or lost the focus.
    Focused(bool),
    /// A key without a meaning here. It still counts as typing where consent is asked for.
    Unbound(KeyEvent),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_to_their_own_line() {
        for entry in TABLE {
            assert_eq!(entry.name.entry().id, entry.id);
            assert_eq!(Name::parse(entry.id), Some(entry.name));
            assert!(!entry.help.is_empty() && !entry.contexts.is_empty());
        }
    }
}
