//! The one seam through which every writing system call of a commit passes. Owns the hook that
//! tests set to fail or to "kill" a commit at a chosen call; does nothing in ordinary use.

use std::cell::RefCell;
use std::io;

/// What becomes of the call that is about to be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It is made.
    Pass,
    /// It fails with this errno and is not made.
    Fail(i32),
    /// The process is thought of as killed: neither this call nor any later one is made, the
    /// clean-up of the commit included.
    Kill,
}

type Hook = Box<dyn FnMut(&'static str) -> Verdict>;

struct State {
    hook: Hook,
    killed: bool,
}

thread_local! {
    static STATE: RefCell<Option<State>> = const { RefCell::new(None) };
}

/// Runs `body` with `hook` asked before every writing system call of this thread's commits; the
/// hook gets the call's name.
pub fn with<R>(hook: impl FnMut(&'static str) -> Verdict + 'static, body: impl FnOnce() -> R) -> R {
    struct Reset;
    impl Drop for Reset {
        fn drop(&mut self) {
            STATE.with(|state| *state.borrow_mut() = None);
        }
    }
    STATE.with(|state| {
        *state.borrow_mut() = Some(State {
            hook: Box::new(hook),
            killed: false,
        });
    });
    let _reset = Reset;
    body()
}

/// Whether the thread's commit counts as killed.
pub(super) fn killed() -> bool {
    STATE.with(|state| state.borrow().as_ref().is_some_and(|s| s.killed))
}

/// Asked before the writing system call `call`.
pub(super) fn pass(call: &'static str) -> io::Result<()> {
    STATE.with(|state| {
        let mut state = state.borrow_mut();
        let Some(state) = state.as_mut() else {
            return Ok(());
        };
        if !state.killed {
            match (state.hook)(call) {
                Verdict::Pass => return Ok(()),
                Verdict::Fail(errno) => return Err(io::Error::from_raw_os_error(errno)),
                Verdict::Kill => state.killed = true,
            }
        }
        Err(io::Error::from_raw_os_error(libc::EINTR))
    })
}
