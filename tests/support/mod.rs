//! What the outside tests share: users to run as, a world of directories per test, the real binary,
//! a terminal, a model for real agents, and the capabilities a machine may lack. Owns no assertion
//! about the product itself.

#[allow(dead_code, reason = "the benches use it, the end-to-end tests do not")]
pub mod beside;
pub mod call;
pub mod capability;
pub mod changes;
pub mod live;
pub mod medium;
pub mod model;
pub mod mounted;
pub mod processes;
pub mod small_disk;
pub mod stage;
pub mod terminal;
pub mod tree;
pub mod user;
pub mod wait;
pub mod world;

pub use call::{Call, Done};
pub use capability::Capability;
pub use changes::Changes;
pub use live::Live;
pub(crate) use stage::each_driver_and_user;
pub use stage::{Driver, Stage};
pub use terminal::Terminal;
pub use tree::Tree;
pub use user::User;
pub use wait::until;
pub use world::{World, binary};

/// Declares one test that runs as root and as an ordinary user, each in a world of its own. Both
/// need a sandbox; where a machine cannot make one, they say so and count as skipped.
macro_rules! each_user {
    ($(#[$meta:meta])* fn $name:ident($world:ident) $body:block) => {
        mod $name {
            #[allow(unused_imports)] // Not every test needs everything its file imports.
            use super::*;

            $(#[$meta])*
            fn check($world: &$crate::support::World) $body

            #[test]
            fn as_root() {
                let name = concat!(module_path!(), "::as_root");
                if let Some(world) = $crate::support::World::of_root(name) {
                    check(&world);
                }
            }

            #[test]
            fn as_ordinary_user() {
                let name = concat!(module_path!(), "::as_ordinary_user");
                if let Some(world) = $crate::support::World::of_ordinary_user(name) {
                    check(&world);
                }
            }
        }
    };
}
pub(crate) use each_user;

/// Leaves the test, with a printed reason, when the machine lacks a capability.
macro_rules! require {
    ($world:expr, $capability:expr) => {
        if !$crate::support::capability::have($world, $capability) {
            return;
        }
    };
}
pub(crate) use require;
