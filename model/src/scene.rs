//! Who takes part, what may go wrong, and which trap is set.

/// The bounds of one check. Everything within them is tried.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a choice of its own")]
pub struct Scene {
    pub holders: u8,
    /// How often each may take the lock.
    pub terms: u8,
    /// What a holder does under its lock: a fenced read, then so many writes.
    pub writes: u8,
    /// Whether the last of them is a delete.
    pub deletes: bool,
    pub proxies: u8,
    /// Units that one batch may hold.
    pub batch: usize,
    /// The lock has a key of its own, which is the scope of the writes; or else it has the name of
    /// the key that is written.
    pub scoped: bool,
    /// A grant claims its key before it is handed out. Off for holders that got their lock
    /// from etcd itself: their fenced read must do.
    pub grants_claim: bool,
    /// Taking a lock is many steps, so that faults fit in between; or else it is one.
    pub slow_grants: bool,
    /// What is answered is on the standby, too.
    pub synchronous: bool,
    pub faults: Faults,
    pub trap: Option<Trap>,
}

/// How often each may happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Faults {
    /// A holder hears nothing, and sends the same again.
    pub repeats: u8,
    /// The network delivers a request once more.
    pub copies: u8,
    /// The connection between a proxy and the database breaks; the transaction may live on.
    pub cuts: u8,
    /// A proxy dies.
    pub kills: u8,
    /// The database dies, and comes back with what was committed.
    pub crashes: u8,
    /// The standby takes over, with as much as it has.
    pub failovers: u8,
    /// The lock service comes back with an earlier state.
    pub restores: u8,
    /// Somebody sends a token that was never issued.
    pub forgeries: u8,
}

/// A thing done wrong, as in the list of traps. Each must lead to a counterexample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Trap {
    /// Neither the grant nor the read claims.
    ReadBeforeTheFirstWrite,
    /// Writes do not name the lock's key as their scope.
    SeveralKeysOneLock,
    /// Writes carry no seq.
    LateDuplicate,
    /// A holder's next grant under the same lease has the same token.
    OneTokenPerLease,
    /// The token is the revision that the answer's header shows.
    HeaderRevision,
    /// Nobody notices that the lock service has gone backwards.
    NoEpochs,
    /// A token is granted before its revision is remembered.
    GrantedBeforeNoted,
    /// An entry's own creation counts as a sign of the lock service's memory.
    OwnCreationCounts,
    /// Nobody notices the failover.
    FailoverUnnoticed,
    /// A synchronous commit that was not waited for is reported as success.
    CancelledWaitIsSuccess,
    /// A lost connection is reported as "not applied".
    UnknownCalledFailed,
    /// Of several writes of one key in a batch, the statement applies one and reports all.
    OneRowPerKey,
    /// The mark is read in one step, and the write applied in another.
    SelectThenUpdate,
    /// A delete takes the row, and the mark with it.
    DeleteDropsTheRow,
    /// Answered before it is committed (as with `synchronous_commit = off`).
    AnsweredBeforeCommit,
    /// The cache learns from what is asked, not from what is committed.
    CacheFromRequests,
    /// Any token is believed.
    AnyTokenBelieved,
    /// Verdicts are matched to writes by their order, though refused ones return no row.
    AnswersByPosition,
    /// The proxy looks at the mark, then forwards the write, which is applied as it is.
    CheckThenForward,
    /// The proxy asks whether the lease is held, then forwards the write.
    LeaseDecides,
    /// The cache itself accepts what is not below its mark.
    CacheAccepts,
    /// A grant may claim a token that its key has already seen.
    EqualClaimPasses,
    /// The floor rises only after writes are accepted again.
    FloorTooLate,
}

impl Scene {
    /// Two holders, two proxies, no faults: the others are made of it.
    pub fn calm() -> Self {
        Self {
            holders: 2,
            terms: 1,
            writes: 2,
            deletes: false,
            proxies: 2,
            batch: 2,
            scoped: true,
            grants_claim: true,
            slow_grants: false,
            synchronous: true,
            faults: Faults::default(),
            trap: None,
        }
    }

    #[must_use]
    pub fn with(self, faults: Faults) -> Self {
        Self { faults, ..self }
    }

    #[must_use]
    pub fn trapped(self, trap: Trap) -> Self {
        Self { trap: Some(trap), ..self }
    }

    pub fn is(&self, trap: Trap) -> bool {
        self.trap == Some(trap)
    }
}
