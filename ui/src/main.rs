//! The `pvisor-tui` binary: hands the process's arguments to the library.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    pvisor_tui::cli::main(std::env::args_os().collect())
}
