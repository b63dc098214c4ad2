//! Steps at which tests end the daemon, and the ways in which tests weaken a pool. Without the feature `test-hooks`,
//! nothing here can be switched on.

/// A step of filling a unit or of a lease, at which a test can kill the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The memory file of a unit exists.
    Created,
    /// It is filled.
    Filled,
    /// It is recorded as ready.
    ReadyRecorded,
    /// It is in the service manager's store.
    Stored,
    /// A request has arrived and is valid.
    Requested,
    /// A unit was removed from those that are ready.
    Chosen,
    /// The unit was removed from the service manager's store.
    Unstored,
    /// The daemon watches for the end of the unit.
    Watched,
    /// The lease is recorded.
    Recorded,
    /// The unit is sealed and belongs to the tenant.
    Sealed,
    /// The descriptor was sent.
    Sent,
    /// The daemon has closed its descriptor.
    Closed,
}

#[cfg(feature = "test-hooks")]
impl Step {
    /// All steps, in order.
    pub const ALL: [Step; 12] = [
        Step::Created,
        Step::Filled,
        Step::ReadyRecorded,
        Step::Stored,
        Step::Requested,
        Step::Chosen,
        Step::Unstored,
        Step::Watched,
        Step::Recorded,
        Step::Sealed,
        Step::Sent,
        Step::Closed,
    ];
}

/// A property that a weakened pool lacks.
#[cfg_attr(not(feature = "test-hooks"), allow(dead_code))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weakness {
    /// Units can be returned, are cleared in place, and are handed out again.
    Recycles,
    /// Units are handed out without seals.
    Unsealed,
    /// The daemon can be inspected and dumped by processes of its user, and keeps mappings of units.
    Dumpable,
    /// Users have no quota.
    NoQuota,
    /// Connections are not limited, and silent ones stay.
    NoConnectionLimit,
    /// The end of a unit is not noticed.
    ForgetsEnds,
    /// Only recycles units for which the kernel grants a write lease, which was thought to prove that nobody uses them.
    LeaseChecked,
}

/// Failpoints and weaknesses that a test has switched on.
#[derive(Clone, Debug, Default)]
pub struct Hooks {
    /// The step at which the daemon dies of SIGKILL.
    #[cfg(feature = "test-hooks")]
    pub kill_at: Option<Step>,
    /// The properties that the pool lacks.
    #[cfg(feature = "test-hooks")]
    pub weak: Vec<Weakness>,
}

impl Hooks {
    /// Ends the process with SIGKILL if a test has chosen this step.
    #[cfg(feature = "test-hooks")]
    pub(crate) fn reach(&self, step: Step) {
        if self.kill_at == Some(step) {
            _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
        }
    }

    /// Does nothing.
    #[cfg(not(feature = "test-hooks"))]
    pub(crate) fn reach(&self, _: Step) {}

    /// Returns true if a test has weakened the pool in this way.
    #[cfg(feature = "test-hooks")]
    pub(crate) fn is(&self, weakness: Weakness) -> bool {
        self.weak.contains(&weakness)
    }

    /// Returns false.
    #[cfg(not(feature = "test-hooks"))]
    pub(crate) fn is(&self, _: Weakness) -> bool {
        false
    }
}
