//! The help of every verb in one snapshot, so that a change of the command line shows in review.

use std::fmt::Write as _;

use clap::Command;

/// Fixed, whatever terminal the tests run in.
const COLUMNS: usize = 100;

fn help(command: &mut Command, path: &str, out: &mut String) {
    let text = command.render_long_help().to_string();
    let _ = writeln!(out, "# {path}\n");
    for line in text.trim_end().lines() {
        let _ = writeln!(out, "{}", line.trim_end());
    }
    out.push('\n');
    for verb in command.get_subcommands_mut() {
        if verb.get_name() != "help" {
            let path = format!("{path} {}", verb.get_name());
            help(verb, &path, out);
        }
    }
}

#[test]
fn help_of_every_verb() {
    let mut command = pvisor_tui::cli::command().term_width(COLUMNS);
    command.build();
    let mut text = String::new();
    help(&mut command, "pvisor-tui", &mut text);
    insta::assert_snapshot!(text);
}

#[test]
fn the_definition_is_consistent() {
    pvisor_tui::cli::command().debug_assert();
}
