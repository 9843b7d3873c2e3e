//! `config show`: the settings that count, and where each came from.

use std::io::Write;
use std::process::ExitCode;

use pvisor::config::{Sources, load};
use pvisor::text::visible;

use super::context::Context;
use super::error::CliError;
use super::json::{self, Setting, Settings};
use super::table;

/// Show the settings
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Print every setting as TOML
    Show {
        /// Name where each value came from
        #[arg(long)]
        origin: bool,
        /// As JSON, with the origins
        #[arg(long)]
        json: bool,
    },
}

/// Carries it out. The current directory counts as the workspace.
pub fn run(args: &Args, context: &Context) -> Result<ExitCode, CliError> {
    let workspace = context.current_dir.canonicalize().ok();
    let loaded = load(Sources {
        paths: &context.paths,
        environment: &context.environment,
        workspace: workspace.as_deref(),
        flags: &[],
    })?;
    for notice in &loaded.notices {
        writeln!(
            std::io::stderr().lock(),
            "warning: {}",
            visible(notice.as_bytes())
        )?;
    }
    let Verb::Show { origin, json } = args.verb;
    if json {
        let mut settings = Settings::new();
        for row in loaded.rows() {
            settings.entry(row.key).or_default().push(Setting {
                value: serde_json::to_value(&row.value)?,
                origin: row.origin.to_string(),
            });
        }
        json::print(&settings)?;
    } else if origin {
        let rows: Vec<Vec<String>> = loaded
            .rows()
            .into_iter()
            .map(|row| {
                let value = row.value.to_string();
                vec![
                    format!("{} = {}", row.key, visible(value.as_bytes())),
                    format!("# {}", row.origin),
                ]
            })
            .collect();
        // Long lists would push the origins out of sight: they stand on a line of their own.
        let mut out = std::io::stdout().lock();
        let (long, short): (Vec<_>, Vec<_>) = rows.into_iter().partition(|r| r[0].len() > 60);
        out.write_all(table::aligned(&short).as_bytes())?;
        for row in long {
            writeln!(out, "{}\n{}", row[1], row[0])?;
        }
    } else {
        let mut out = std::io::stdout().lock();
        for line in loaded.to_toml().lines() {
            writeln!(out, "{}", visible(line.as_bytes()))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
