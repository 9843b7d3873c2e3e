//! Which driver merges a layer. Owns the rule, pure over what was asked for and what was probed;
//! knows how to find out nothing itself.

use std::path::PathBuf;

use super::SandboxSpec;
use super::failure::{Failure, shown};
use super::spec::{CacheMode, DriverChoice};
use crate::layer::{Driver, HOME, Layer, WORKSPACE};
use crate::policy::{Origin, Policy};

/// Two things asked for that exclude each other.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{asked} cannot go together with {with}: {why}")]
pub struct Clash {
    /// The option as typed.
    pub asked: String,
    /// The other one.
    pub with: String,
    /// Why, one clause.
    pub why: &'static str,
    /// What mends it.
    pub hint: String,
}

/// Finds what excludes each other whatever the machine allows.
pub fn clash(spec: &SandboxSpec) -> Option<Clash> {
    let rule = acting_rule(&spec.policy);
    if spec.driver == DriverChoice::Overlayfs
        && let Some(need) = need(spec)
    {
        return Some(Clash {
            asked: "--driver overlayfs".into(),
            why: "the kernel's overlay neither asks, nor tells, nor keeps a cache of ours",
            hint: format!("leave out {need}, or take `--driver auto`"),
            with: need,
        });
    }
    if spec.cache == CacheMode::Extended {
        let with = if spec.observe {
            Some("--observe".into())
        } else {
            rule
        };
        if let Some(with) = with {
            return Some(Clash {
                asked: "--cache extended".into(),
                why: "what the kernel answers from its cache is neither seen nor asked about",
                hint: format!("leave out {with}, or take `--cache default`"),
                with,
            });
        }
    }
    None
}

/// The option that only the file server can serve, as typed.
fn need(spec: &SandboxSpec) -> Option<String> {
    if let Some(rule) = acting_rule(&spec.policy) {
        return Some(rule);
    }
    if spec.observe {
        return Some("--observe".into());
    }
    match spec.cache {
        CacheMode::Default => None,
        CacheMode::ImmutableLower => Some("--cache immutable-lower".into()),
        CacheMode::Extended => Some("--cache extended".into()),
    }
}

/// The first rule somebody made. The built-in ones hold where there is a file server, and ask for
/// none.
fn acting_rule(policy: &Policy) -> Option<String> {
    let rule = policy.needs_file_server()?;
    let level = rule.level.name();
    let glob = crate::text::visible(rule.glob.as_bytes());
    Some(match rule.origin {
        Origin::Session => format!("--rule {level}:{glob}"),
        _ => format!("the configured rule {level}:{glob}"),
    })
}

/// Whether accesses must be told to the session: rules that act, or the observation log.
pub(super) fn is_guarded(spec: &SandboxSpec) -> bool {
    spec.observe || acting_rule(&spec.policy).is_some()
}

/// What was probed of a layer.
#[derive(Debug, Clone, Default)]
pub(super) struct Facts {
    /// Why the kernel's overlay cannot have its upper there: file system and reason.
    pub unfit: Option<String>,
    /// Mounts below its lower.
    pub below: Vec<PathBuf>,
}

/// How a layer is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Staged by this driver.
    Staged {
        /// Which.
        driver: Driver,
        /// Why, one clause.
        reason: String,
    },
    /// Not staged: shown without the right to write.
    ReadOnly {
        /// Why, one clause.
        reason: String,
    },
}

/// Decides for one layer. `refused` is why this machine cannot mount a FUSE file system, if so.
pub(super) fn choose(
    spec: &SandboxSpec,
    layer: &Layer,
    facts: &Facts,
    refused: Option<&Failure>,
) -> Result<Verdict, Failure> {
    let doing = || format!("staging {}", shown(&layer.root));
    let staged = |driver, reason: String| Ok(Verdict::Staged { driver, reason });
    if let Some(clash) = clash(spec) {
        return Err(Failure::new(doing(), clash.to_string()).hint(clash.hint));
    }
    // What the kernel cannot do here.
    let obstacle = match (facts.below.first(), &facts.unfit) {
        (Some(point), _) => Some(format!("{} is mounted inside it", shown(point))),
        (None, Some(unfit)) => Some(format!("its upper is on {unfit}")),
        (None, None) => None,
    };
    let need = need_of(spec, layer);
    if spec.driver == DriverChoice::Fuse || need.is_some() {
        let reason = match need {
            Some(need) => format!("{need} needs it"),
            None => "asked for".into(),
        };
        return match refused {
            None => staged(Driver::Fuse, reason),
            Some(failure) => Err(Failure {
                doing: format!("{} with the driver fuse ({reason})", doing()),
                cause: format!("{}: {}", failure.doing, failure.cause),
                hint: failure.hint.clone(),
            }),
        };
    }
    let Some(obstacle) = obstacle else {
        let reason = "the kernel can merge it, which is the fastest way";
        return staged(Driver::Overlayfs, reason.into());
    };
    match (spec.driver, refused) {
        (DriverChoice::Auto, None) => staged(
            Driver::Fuse,
            format!("the kernel's overlay cannot: {obstacle}"),
        ),
        // Nobody asked for the home directory: a session without it being staged is still one.
        _ if layer.name == HOME => Ok(Verdict::ReadOnly {
            reason: match refused {
                Some(failure) => format!("{obstacle}, and {}: {}", failure.doing, failure.cause),
                None => format!("{obstacle}, which the kernel's overlay cannot stage"),
            },
        }),
        (DriverChoice::Overlayfs, _) => Err(Failure::new(
            format!("{} with --driver overlayfs", doing()),
            obstacle,
        )
        .hint("take `--driver auto`, or a workspace without it")),
        (_, Some(failure)) => Err(Failure {
            doing: doing(),
            cause: format!(
                "{obstacle}, so that the driver fuse is needed; {}: {}",
                failure.doing, failure.cause
            ),
            hint: failure.hint.clone(),
        }),
        (DriverChoice::Fuse, None) => staged(Driver::Fuse, "asked for".into()),
    }
}

/// [`need`] as far as it concerns this layer: a promise that nothing else writes covers the
/// workspace only.
fn need_of(spec: &SandboxSpec, layer: &Layer) -> Option<String> {
    if is_guarded(spec) || cache_of(spec, layer) != CacheMode::Default {
        return need(spec);
    }
    None
}

/// The cache a layer may have. `--cache` is a person's word that nobody else changes the workspace
/// meanwhile; nobody can say that of a home directory or of a mount.
pub(super) fn cache_of(spec: &SandboxSpec, layer: &Layer) -> CacheMode {
    if layer.name == WORKSPACE {
        spec.cache
    } else {
        CacheMode::Default
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{Level, Rule};
    use crate::sandbox::spec::{Limits, Network};
    use crate::sandbox::{Mode, Stdio};

    fn spec(driver: DriverChoice) -> SandboxSpec {
        SandboxSpec {
            mode: Mode::Staged,
            command: Vec::new(),
            cwd: "/w".into(),
            env: Vec::new(),
            layers: Vec::new(),
            mounts: Vec::new(),
            unhide: Vec::new(),
            hide: Vec::new(),
            home: "/h".into(),
            private: "/s/private".into(),
            stdio: Stdio::Pipes,
            timeout: None,
            network: Network::Host,
            driver,
            cache: CacheMode::Default,
            observe: false,
            policy: Policy::default(),
            limits: Limits::default(),
            rename_shim: true,
            nested: false,
            notes: Vec::new(),
        }
    }

    fn layer(name: &str) -> Layer {
        Layer {
            name: name.into(),
            root: "/w".into(),
            dir: "/s/layers/w".into(),
            driver: Driver::Overlayfs,
        }
    }

    fn mounted() -> Facts {
        Facts {
            below: vec!["/w/mnt".into()],
            ..Facts::default()
        }
    }

    fn rule(origin: Origin) -> Policy {
        Policy {
            rules: vec![Rule {
                level: Level::Deny,
                glob: "keys/**".into(),
                origin,
            }],
            ..Policy::default()
        }
    }

    fn no_fuse() -> Failure {
        Failure::new("opening /dev/fuse", "No such file or directory").hint("modprobe fuse")
    }

    /// Driver and reason, `read-only` and reason, or the refusal in full.
    fn outcome(
        spec: &SandboxSpec,
        name: &str,
        facts: &Facts,
        refused: Option<&Failure>,
    ) -> Result<(&'static str, String), String> {
        match choose(spec, &layer(name), facts, refused) {
            Ok(Verdict::Staged { driver, reason }) => Ok((driver.name(), reason)),
            Ok(Verdict::ReadOnly { reason }) => Ok(("read-only", reason)),
            Err(f) => Err(format!(
                "{}: {} ({})",
                f.doing,
                f.cause,
                f.hint.unwrap_or_default()
            )),
        }
    }

    #[test]
    fn auto_takes_the_kernel_where_nothing_speaks_against_it() {
        let auto = spec(DriverChoice::Auto);
        let (driver, _) = outcome(&auto, WORKSPACE, &Facts::default(), None).expect("staged");
        assert_eq!(driver, "overlayfs");
        let missing = no_fuse();
        let without = outcome(&auto, WORKSPACE, &Facts::default(), Some(&missing));
        assert_eq!(without.expect("staged").0, "overlayfs");
    }

    #[test]
    fn auto_takes_the_file_server_for_each_reason_and_says_which() {
        let auto = spec(DriverChoice::Auto);
        let mut observed = auto.clone();
        observed.observe = true;
        let mut ruled = auto.clone();
        ruled.policy = rule(Origin::User);
        let mut cached = auto.clone();
        cached.cache = CacheMode::Extended;
        let unfit = Facts {
            unfit: Some("NFS, which cannot".into()),
            ..Facts::default()
        };
        for (spec, facts, why) in [
            (&auto, mounted(), "/w/mnt is mounted inside it"),
            (&auto, unfit, "its upper is on NFS"),
            (&observed, Facts::default(), "--observe needs it"),
            (&ruled, Facts::default(), "rule deny:keys/** needs it"),
            (&cached, Facts::default(), "--cache extended needs it"),
        ] {
            let (driver, reason) = outcome(spec, WORKSPACE, &facts, None).expect("staged");
            assert_eq!(driver, "fuse");
            assert!(reason.contains(why), "{reason}");
            let missing = no_fuse();
            let error = outcome(spec, WORKSPACE, &facts, Some(&missing)).expect_err(why);
            assert!(error.contains("No such file"), "{error}");
            assert!(error.contains("modprobe"), "{error}");
        }
    }

    #[test]
    fn built_in_rules_and_a_promise_about_the_workspace_leave_the_home_with_the_kernel() {
        let mut spec = spec(DriverChoice::Auto);
        spec.policy = rule(Origin::BuiltIn);
        let of = |spec: &SandboxSpec, name| outcome(spec, name, &Facts::default(), None);
        assert_eq!(of(&spec, WORKSPACE).expect("staged").0, "overlayfs");
        spec.cache = CacheMode::ImmutableLower;
        assert_eq!(of(&spec, WORKSPACE).expect("staged").0, "fuse");
        assert_eq!(of(&spec, HOME).expect("staged").0, "overlayfs");
        assert_eq!(cache_of(&spec, &layer(HOME)), CacheMode::Default);
    }

    #[test]
    fn a_home_that_nobody_can_stage_is_read_only_and_a_workspace_is_refused() {
        let auto = spec(DriverChoice::Auto);
        let missing = no_fuse();
        let home = outcome(&auto, HOME, &mounted(), Some(&missing)).expect("shown");
        assert_eq!(home.0, "read-only");
        let kernel = spec(DriverChoice::Overlayfs);
        let home = outcome(&kernel, HOME, &mounted(), None).expect("shown");
        assert_eq!(home.0, "read-only");
        let error = outcome(&kernel, WORKSPACE, &mounted(), None).expect_err("refused");
        assert!(error.contains("--driver overlayfs"), "{error}");
        assert!(error.contains("/w/mnt"), "{error}");
    }

    #[test]
    fn what_was_asked_for_is_taken_or_refused() {
        let fuse = spec(DriverChoice::Fuse);
        let taken = outcome(&fuse, HOME, &Facts::default(), None);
        assert_eq!(taken, Ok(("fuse", "asked for".into())));
        let missing = no_fuse();
        let error = outcome(&fuse, HOME, &Facts::default(), Some(&missing)).expect_err("refused");
        assert!(error.contains("driver fuse"), "{error}");
    }

    #[test]
    fn options_that_exclude_each_other_are_named() {
        let told = |spec: &SandboxSpec| clash(spec).map(|clash| clash.to_string());
        let mut kernel = spec(DriverChoice::Overlayfs);
        assert_eq!(told(&kernel), None);
        kernel.observe = true;
        let text = told(&kernel).expect("a clash");
        assert!(text.starts_with("--driver overlayfs cannot go together with --observe"));
        kernel.observe = false;
        kernel.cache = CacheMode::ImmutableLower;
        assert!(told(&kernel).is_some_and(|t| t.contains("--cache immutable-lower")));
        let mut extended = spec(DriverChoice::Auto);
        extended.cache = CacheMode::Extended;
        assert_eq!(told(&extended), None);
        extended.policy = rule(Origin::Session);
        assert!(told(&extended).is_some_and(|t| t.contains("--rule deny:keys/**")));
        extended.policy = rule(Origin::BuiltIn);
        extended.observe = true;
        assert!(told(&extended).is_some_and(|t| t.contains("--observe")));
        extended.cache = CacheMode::ImmutableLower;
        assert_eq!(told(&extended), None);
    }
}
