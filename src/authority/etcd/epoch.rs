//! Tokens from revisions, and when an etcd has gone backwards. No I/O, no clock.
//!
//! A token is `epoch << 48 | revision`. While etcd keeps its memory the epoch stays, and tokens rise
//! because revisions do. When it shows less than it was once seen at (restored from a snapshot, or wiped), the
//! epoch moves on, and tokens rise all the same. Another cluster is refused.

use etcd_client::ResponseHeader;

use crate::{
    authority::AuthorityError,
    store::{Remembered, Sighting},
    token::Token,
};

const REVISION_BITS: u32 = 48;
const LAST_REVISION: i64 = (1 << REVISION_BITS) - 1;
/// Fifteen bits, so that a token stays positive.
pub const LAST_EPOCH: u16 = 0x7fff;

/// The token of a key that was created at `revision`. Where the bits run out it is refused: a token
/// that wrapped around would be low, and fence off its own holder.
pub fn token(epoch: u16, revision: i64) -> Result<Token, AuthorityError> {
    if !has_room_for(revision) || epoch > LAST_EPOCH {
        return Err(AuthorityError::Unfit(format!(
            "etcd's revision {revision} in epoch {epoch} is beyond what a token can hold"
        )));
    }
    Token::new(newest(epoch, revision))
        .ok_or_else(|| AuthorityError::Unfit(format!("etcd's revision {revision} is not one")))
}

fn has_room_for(revision: i64) -> bool {
    revision <= LAST_REVISION
}

/// The same as a number, also for a revision at which nothing was created yet.
pub fn newest(epoch: u16, revision: i64) -> i64 {
    i64::from(epoch) << REVISION_BITS | revision
}

/// A token taken apart: its epoch, and the revision that its key was created at.
pub fn parts(token: Token) -> (u16, i64) {
    let epoch = u16::try_from(token.get() >> REVISION_BITS).unwrap_or(u16::MAX);
    (epoch, token.get() & LAST_REVISION)
}

/// What to remember of an etcd that is met for the first time: the lowest epoch in which all its
/// tokens to come exceed `highest`.
pub fn first(seen: &Sighting, highest: i64) -> Result<Remembered, AuthorityError> {
    let epoch = if newest(0, seen.revision) >= highest {
        0
    } else {
        let epoch = highest >> REVISION_BITS;
        epoch + i64::from(seen.revision < highest & LAST_REVISION)
    };
    match u16::try_from(epoch) {
        Ok(epoch) if epoch <= LAST_EPOCH => Ok(Remembered { epoch, seen: seen.clone() }),
        _ => Err(AuthorityError::Unfit(format!(
            "the store has seen the token {highest}, and no epoch is left above it"
        ))),
    }
}

/// What the header of an answer shows.
pub fn sighting(header: Option<&ResponseHeader>) -> Result<Sighting, AuthorityError> {
    let header =
        header.ok_or_else(|| AuthorityError::Unfit("etcd's answer has no header".into()))?;
    if !has_room_for(header.revision()) {
        return Err(AuthorityError::Unfit(format!(
            "etcd's revision {} is beyond what a token can hold",
            header.revision()
        )));
    }
    Ok(Sighting {
        revision: header.revision(),
        cluster: format!("{:x}", header.cluster_id()),
        term: i64::try_from(header.raft_term()).unwrap_or(i64::MAX),
    })
}

/// Whether the etcd that was seen as `remembered` says has lost its memory, if it now shows `seen`. The
/// answer counts only where `seen` comes from a linearizable request that was begun after the
/// memory was read: an answer that was merely overtaken by others is no evidence.
///
/// Another cluster is an error. Its revisions say nothing, and it moves no epoch: two clusters that are
/// asked in turn would use up all epochs. An operator moves the store to it, or corrects the address.
pub fn has_gone_backwards(
    remembered: &Remembered,
    seen: &Sighting,
) -> Result<bool, AuthorityError> {
    let known = &remembered.seen;
    if seen.cluster != known.cluster {
        return Err(AuthorityError::Foreign(format!(
            "this is etcd cluster {}, and the store belongs to etcd cluster {}; correct \
             --authority, or move the store with `fencepost authority move`",
            seen.cluster, known.cluster
        )));
    }
    Ok(seen.revision < known.revision || seen.term < known.term)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(revision: i64) -> Sighting {
        Sighting { revision, cluster: "c".into(), term: 2 }
    }

    #[test]
    fn in_the_first_epoch_a_token_is_the_revision() {
        assert_eq!(token(0, 7).unwrap().get(), 7);
        assert_eq!(token(1, 7).unwrap().get(), (1 << 48) + 7);
        assert_eq!(parts(token(3, 9).unwrap()), (3, 9));
    }

    #[test]
    fn what_does_not_fit_is_refused_and_never_wraps() {
        assert!(token(0, LAST_REVISION).is_ok());
        assert!(token(0, LAST_REVISION + 1).is_err());
        assert_eq!(token(LAST_EPOCH, LAST_REVISION).unwrap().get(), i64::MAX);
        assert!(token(LAST_EPOCH + 1, 1).is_err());
        assert!(token(0, 0).is_err());
        assert!(first(&at(1), i64::MAX).is_err());
    }

    #[test]
    fn a_first_meeting_spends_no_epoch_in_vain() {
        let epoch = |revision, highest| first(&at(revision), highest).unwrap().epoch;
        assert_eq!(epoch(10, 10), 0);
        assert_eq!(epoch(9, 10), 1);
        // The next token is of revision 11, at the earliest.
        assert_eq!(epoch(10, newest(3, 10)), 3);
        assert_eq!(epoch(9, newest(3, 10)), 4);
    }

    #[test]
    fn less_than_was_seen_is_backwards_in_each_respect() {
        let known = Remembered { epoch: 0, seen: at(10) };
        assert!(!has_gone_backwards(&known, &at(10)).unwrap());
        assert!(!has_gone_backwards(&known, &at(11)).unwrap());
        assert!(has_gone_backwards(&known, &at(9)).unwrap());
        assert!(has_gone_backwards(&known, &Sighting { term: 1, ..at(99) }).unwrap());
    }

    #[test]
    fn another_cluster_is_refused_however_far_it_has_come() {
        let known = Remembered { epoch: 0, seen: at(10) };
        for revision in [1, 10, 99] {
            let other = Sighting { cluster: "d".into(), ..at(revision) };
            let refused = has_gone_backwards(&known, &other);
            assert!(matches!(refused, Err(AuthorityError::Foreign(_))), "{refused:?}");
        }
    }

    proptest! {
        #[test]
        fn a_first_meeting_starts_above_everything(
            revision in 1..LAST_REVISION,
            highest in 0i64..1 << 62,
        ) {
            let met = first(&at(revision), highest).unwrap();
            prop_assert!(token(met.epoch, revision + 1).unwrap().get() > highest);
            // And no higher than it must.
            if met.epoch > 0 {
                prop_assert!(newest(met.epoch - 1, revision) < highest);
            }
        }

        #[test]
        fn a_later_epoch_outranks_every_earlier_token(
            epoch in 0..LAST_EPOCH, earlier in 1..=LAST_REVISION, later in 1..=LAST_REVISION,
        ) {
            prop_assert!(token(epoch + 1, later).unwrap() > token(epoch, earlier).unwrap());
        }
    }
}
