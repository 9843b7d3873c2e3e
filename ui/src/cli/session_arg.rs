//! The choice of a session on the command line. Owns the rule: a positional is `last`, a full id
//! or an exact name; `-s` takes the beginning of either too; without both it is the last one.

use std::ffi::{OsStr, OsString};

use clap::Args;
use pvisor::session::store::{LAST, SessionRecord, StoreError};

use super::context::Context;
use super::error::CliError;

/// `[S]` or `-s S`.
#[derive(Debug, Clone, Default, Args)]
pub struct SessionArg {
    /// The session: `last`, its id or its name [default: last]
    #[arg(value_name = "S", conflicts_with = "fitting")]
    session: Option<OsString>,
    /// The session by the beginning of its id or name
    #[arg(short = 's', value_name = "S", id = "fitting")]
    fitting: Option<OsString>,
}

impl SessionArg {
    /// The session that is meant.
    pub fn find(&self, context: &Context) -> Result<SessionRecord, CliError> {
        match (&self.fitting, &self.session) {
            (Some(typed), _) => find(context, typed, true),
            (None, Some(typed)) => find(context, typed, false),
            (None, None) => Ok(context.store.last()?),
        }
    }
}

/// The session, and the arguments that are left: the first one names a session when it is `last`,
/// a full id or an exact name and `-s` was not given.
pub fn split<'a>(
    context: &Context,
    fitting: Option<&OsStr>,
    arguments: &'a [OsString],
) -> Result<(SessionRecord, &'a [OsString]), CliError> {
    if let Some(typed) = fitting {
        return Ok((find(context, typed, true)?, arguments));
    }
    if let Some((first, rest)) = arguments.split_first() {
        if first == LAST {
            return Ok((context.store.last()?, rest));
        }
        match find_exact(context, first)? {
            Some(record) => return Ok((record, rest)),
            None => return Ok((context.store.last()?, arguments)),
        }
    }
    Ok((context.store.last()?, arguments))
}

/// The session that is named, or an error.
pub fn find(context: &Context, typed: &OsStr, prefixes: bool) -> Result<SessionRecord, CliError> {
    Ok(context.store.find(&typed.to_string_lossy(), prefixes)?)
}

fn find_exact(context: &Context, typed: &OsStr) -> Result<Option<SessionRecord>, CliError> {
    // A name is text; what is no text is a path.
    let Some(typed) = typed.to_str() else {
        return Ok(None);
    };
    match context.store.find(typed, false) {
        Ok(record) => Ok(Some(record)),
        Err(StoreError::NotFound(_) | StoreError::Empty | StoreError::Discarded) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
