//! The sandbox, tried from inside. Starting one forks children that go on without exec, which
//! needs a process with one thread, so these tests bring their own harness: every test runs on the
//! main thread, one after the other. Arguments select tests by a part of their name.
//!
//! Run them as root and as an ordinary user; `PVISOR_TEST_DIR` names a directory to work in.

mod fixture;
mod isolation;
mod layers;
mod lifetime;
mod machine;
mod served;

use std::path::Path;

type Test = (&'static str, fn());

macro_rules! tests {
    ($($module:ident::$name:ident),* $(,)?) => {
        &[$((stringify!($name), $module::$name as fn())),*]
    };
}

const TESTS: &[Test] = tests![
    layers::the_command_runs_in_place_as_its_caller_and_the_host_stays_clean,
    isolation::nothing_inside_holds_a_capability,
    isolation::root_inside_cannot_touch_the_kernels_settings,
    isolation::hidden_places_are_empty_and_stay_hidden,
    isolation::what_was_given_back_is_seen,
    isolation::the_system_is_read_only_and_scratch_places_are_private,
    isolation::only_harmless_devices_exist,
    isolation::sockets_outside_are_out_of_reach,
    isolation::without_a_network_only_the_loopback_is_left,
    isolation::only_the_given_environment_and_descriptors_pass,
    lifetime::exit_statuses_are_those_of_a_shell,
    lifetime::a_time_limit_ends_the_command,
    lifetime::a_stop_ends_every_descendant,
    lifetime::nothing_survives_a_killed_server,
    lifetime::the_end_of_the_command_ends_what_it_left_behind,
    lifetime::a_terminal_has_a_name_and_a_size,
    lifetime::terminals_can_be_made_inside,
    machine::a_workspace_on_a_mount_of_its_own_is_staged,
    layers::a_workspace_in_tmp_is_seen_in_place,
    layers::a_workspace_that_is_the_home_is_one_layer,
    layers::a_session_inside_the_workspace_is_hidden,
    layers::a_workspace_in_a_hidden_place_is_refused,
    layers::mounts_are_what_was_asked_for,
    layers::a_layer_goes_on_with_its_upper,
    layers::uppers_are_read_with_the_agents_rights,
    layers::a_restore_is_seen_by_the_agent_and_loses_no_later_write,
    machine::a_covered_proc_is_used_read_only,
    machine::a_mount_inside_the_workspace_is_shown_and_never_written,
    machine::a_mount_inside_the_home_leaves_it_staged,
    machine::without_user_namespaces_nothing_runs,
    lifetime::mode_host_is_a_plain_process,
    machine::doctor_tries_every_step_and_leaves_nothing,
    served::a_script_on_the_mount_does_what_it_does_in_a_copy,
    served::a_script_on_a_mount_that_caches_all_it_can_does_too,
    lifetime::start_cost,
];

fn main() {
    let mut wanted: Vec<String> = std::env::args().skip(1).collect();
    if wanted.iter().any(|a| a == "--list") {
        for (name, _) in TESTS {
            println!("{name}: test");
        }
        return;
    }
    if let Ok(scenario) = std::env::var("PVISOR_SCENARIO") {
        let (name, path) = scenario.split_once(' ').unwrap_or((&scenario, ""));
        match name {
            "proc" => machine::scenario_proc(),
            "submount" => machine::scenario_submount(Path::new(path)),
            "mounted" => machine::scenario_mounted(Path::new(path)),
            "home" => machine::scenario_home(Path::new(path)),
            _ => machine::scenario_denied(),
        }
        return;
    }
    wanted.retain(|a| !a.starts_with('-'));
    let mut failed = Vec::new();
    for (name, test) in TESTS {
        let selected = wanted.is_empty() || wanted.iter().any(|w| name.contains(w.as_str()));
        if !selected {
            continue;
        }
        let outcome = std::panic::catch_unwind(test);
        println!(
            "test {name} ... {}",
            if outcome.is_ok() { "ok" } else { "FAILED" }
        );
        if outcome.is_err() {
            failed.push(*name);
        }
    }
    if !failed.is_empty() {
        println!("failed: {}", failed.join(", "));
        std::process::exit(101);
    }
}
