//! The scopes of writes that share a statement.
//!
//! A write under a scope passes only if the scope's mark lets it. To read that mark is not enough: it could
//! rise before the write commits, and a newer holder would be told that it is alone. So the statement locks
//! the scope's row, and holds on to it until its own commit.
//!
//! Mostly the mark has the write's token already, since the grant has claimed it. Then there is nothing to
//! raise, and one lock serves all writes of the batch that share the scope. Where the mark would have to
//! rise, or there is no row, nothing is locked and nothing written: that is left to the locked path. So a
//! zombie takes no lock here that the live holder needs.
//!
//! All scopes are locked before any key. Everybody else locks whatever they need in byte order, so a batch of
//! another fencepost that writes the scope's own key, and one of our keys before it, would wait for us, and we
//! for it. But a lane waits for any one row for 100 ms at most, which is less than Postgres takes to call it a
//! deadlock. Then it lets go of its scopes, and those who are blocked take a detour, where sessions are
//! patient; there no statement holds scopes, and all rows are locked in byte order.

use super::plan::Run;

/// A CTE that locks the scopes: $11 scopes in byte order, each once, and $12 the tokens that their marks must
/// have. Its one row says of each, in the same order, whether it does. The first stands for no scope at
/// all, and is always passed.
macro_rules! guards {
    () => {
        "guards AS MATERIALIZED (
    SELECT array_agg(g.scope IS NULL OR (
        SELECT true FROM fencepost.resources AS s
        WHERE s.key = g.scope AND s.token = g.token FOR NO KEY UPDATE)) AS hold
    FROM (SELECT unnest($11::text[]) AS scope, unnest($12::bigint[]) AS token) AS g
)"
    };
}

/// The condition of a row `n` on its guard, whose place is `n.guard`. It is looked at before the row's own lock is
/// taken, and so the guards are held by then.
macro_rules! guard_holds {
    () => {
        "(SELECT hold FROM guards)[n.guard]"
    };
}

pub(super) use {guard_holds, guards};

/// What the statement is told of the scopes of its runs.
pub struct Guards<'a> {
    pub scopes: Vec<Option<&'a str>>,
    pub tokens: Vec<Option<i64>>,
    /// For each run the place of its scope among them, from 1 on.
    pub places: Vec<i32>,
}

impl<'a> Guards<'a> {
    /// `None` where no run has a scope.
    pub fn of(runs: &'a [Run<'_>]) -> Option<Self> {
        let with_token = |run: &'a Run<'_>| Some((run.scope()?.as_str(), run.mark().token));
        let mut scopes: Vec<(&str, i64)> = runs.iter().filter_map(with_token).collect();
        if scopes.is_empty() {
            return None;
        }
        // Of one scope all have the same token: the plan has seen to that.
        scopes.sort_unstable();
        scopes.dedup();
        let place = |run: &Run<'_>| {
            let place = run.scope().map_or(0, |scope| {
                1 + scopes.partition_point(|(other, _)| *other < scope.as_str())
            });
            i32::try_from(place + 1).unwrap_or(i32::MAX)
        };
        let none_first = || std::iter::once(None).chain(scopes.iter().copied().map(Some));
        Some(Self {
            scopes: none_first().map(|guard| guard.map(|(scope, _)| scope)).collect(),
            tokens: none_first().map(|guard| guard.map(|(_, token)| token)).collect(),
            places: runs.iter().map(place).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        store::{Unit, postgres::plan::plan},
        token::{Key, Token},
        write::Write,
    };

    fn claim(key: &str, scope: Option<&str>, token: i64) -> Unit {
        let scope = scope.map(|scope| Key::new(scope).unwrap());
        let claim = Write::claim(Key::new(key).unwrap(), Token::new(token).unwrap());
        Unit::single(Write { scope, ..claim })
    }

    #[test]
    fn each_scope_is_there_once_and_each_run_knows_its_place() {
        let units = [
            claim("a", Some("z"), 3),
            claim("b", None, 4),
            claim("c", Some("y"), 5),
            claim("d", Some("z"), 3),
        ];
        let plan = plan(&units, &[0, 1, 2, 3]);
        let guards = Guards::of(&plan.runs).expect("some have a scope");
        assert_eq!(guards.scopes, [None, Some("y"), Some("z")]);
        assert_eq!(guards.tokens, [None, Some(5), Some(3)]);
        assert_eq!(guards.places, [3, 1, 2, 3]);
    }

    #[test]
    fn where_nobody_has_a_scope_there_are_none() {
        let units = [claim("a", None, 3), claim("b", None, 4)];
        assert!(Guards::of(&plan(&units, &[0, 1]).runs).is_none());
    }
}
