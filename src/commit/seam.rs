//! The one seam through which every writing system call of a commit passes. Owns the hook that
//! tests set to fail or to "kill" a commit at a chosen call; does nothing in ordinary use.

use std::cell::RefCell;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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

type Hook = Box<dyn FnMut(&'static str) -> Verdict + Send>;

struct State {
    hook: Hook,
    killed: bool,
}

/// What a thread's commits ask, to be handed on to the threads that work for them.
#[derive(Clone)]
pub(super) struct Share(Option<Arc<Mutex<State>>>);

impl Share {
    /// That of this thread.
    pub fn of_this_thread() -> Self {
        STATE.with(|state| state.borrow().clone())
    }

    /// From here on this thread asks it, too.
    pub fn enter(self) {
        STATE.with(|state| *state.borrow_mut() = self);
    }

    fn lock(&self) -> Option<MutexGuard<'_, State>> {
        let state = self.0.as_ref()?;
        Some(state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

thread_local! {
    static STATE: RefCell<Share> = const { RefCell::new(Share(None)) };
}

/// Runs `body` with `hook` asked before every writing system call of this thread's commits, and of
/// those that work for it; the hook gets the call's name.
pub fn with<R>(
    hook: impl FnMut(&'static str) -> Verdict + Send + 'static,
    body: impl FnOnce() -> R,
) -> R {
    struct Reset;
    impl Drop for Reset {
        fn drop(&mut self) {
            Share(None).enter();
        }
    }
    let state = State {
        hook: Box::new(hook),
        killed: false,
    };
    Share(Some(Arc::new(Mutex::new(state)))).enter();
    let _reset = Reset;
    body()
}

/// Whether the thread's commit counts as killed.
pub(super) fn killed() -> bool {
    let share = Share::of_this_thread();
    share.lock().is_some_and(|state| state.killed)
}

/// Asked before the writing system call `call`.
pub(super) fn pass(call: &'static str) -> io::Result<()> {
    STATE.with(|share| {
        let share = share.borrow();
        let Some(mut state) = share.lock() else {
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
