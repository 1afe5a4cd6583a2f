//! A look at the rows without locks, which settles whatever changes nothing.
//!
//! The look is one statement, so it sees all rows at one moment. A unit that would have changed
//! nothing at that moment (stale, out of order, a replay, a mark that is there already) can be
//! answered as if it had come just then. So a zombie is refused without a lock that the live holder
//! needs.

use std::collections::{HashMap, HashSet};

use sqlx::postgres::PgRow;

use super::{
    batch::Batch,
    connection::not_applied,
    rows::{floor_of, has_standbys, key_of, standing_of, value_of},
    session::PostgresSession,
};
use crate::{
    store::{Settled, StoreError, Unit, ledger::Ledger},
    token::{Key, Mark},
    write::Value,
};

/// $1 keys, $2 those of them whose value is wanted. The floor comes with every row, and also if
/// there is none.
const LOOK_AT_ROWS: &str = "
SELECT r.key, r.token, r.seq, r.version, r.created, r.digest, r.value IS NOT NULL AS present,
       CASE WHEN r.key = ANY($2) AND octet_length(r.value) <= 65536 THEN r.value END AS value,
       CASE WHEN r.key = ANY($2) THEN r.content_type END AS content_type, f.token AS floor,
       current_setting('synchronous_standby_names') <> '' AS has_standbys
FROM fencepost.floor AS f LEFT JOIN fencepost.resources AS r ON r.key = ANY($1)";

struct Looked {
    ledger: Ledger,
    values: HashMap<Key, Value>,
    /// Whether commits wait for a standby: what was seen may not have got there yet.
    has_standbys: bool,
}

impl PostgresSession {
    /// Answers every unit that changes nothing and whose keys no other unit here changes. What was
    /// seen is of use for the rest.
    pub(super) async fn settle_by_look(
        &mut self,
        batch: &mut Batch<'_>,
        places: &[usize],
    ) -> Result<Ledger, StoreError> {
        let units = batch.units;
        let keys = sorted_keys(places.iter().map(|place| &units[*place]));
        let wanted = places.iter().map(|place| &units[*place]).filter(|unit| unit.read_back);
        self.connection.begin_if_pooled().await?;
        let looked = self.look(&keys, &sorted_keys(wanted)).await;
        self.connection.end_if_pooled(&looked).await?;
        let Looked { mut ledger, values, has_standbys } = looked?;

        let mut changing: HashSet<&Key> = HashSet::new();
        let mut verdicts = Vec::with_capacity(places.len());
        for &place in places {
            verdicts.push(ledger.settle(&units[place]));
            if ledger.has_changed() {
                changing.extend(units[place].keys());
            }
        }
        for (&place, mut settled) in places.iter().zip(verdicts) {
            let unit = &units[place];
            if unit.keys().any(|key| changing.contains(key)) {
                continue;
            }
            if let Settled::Applied { value, .. } = &mut settled
                && unit.read_back
            {
                *value = values.get(&unit.writes()[0].key).cloned();
            }
            if has_standbys {
                batch.answer_as_seen(place, settled);
            } else {
                batch.answer(place, Ok(settled));
            }
        }
        Ok(ledger)
    }

    async fn look(&mut self, keys: &[Key], wanted: &[Key]) -> Result<Looked, StoreError> {
        let names = |keys: &[Key]| keys.iter().map(ToString::to_string).collect::<Vec<_>>();
        let rows = sqlx::query(LOOK_AT_ROWS)
            .bind(names(keys))
            .bind(names(wanted))
            .persistent(self.connection.keeps_statements())
            .fetch_all(self.connection.raw())
            .await
            .map_err(not_applied)?;
        let (floor, has_standbys) = match rows.first() {
            Some(row) => {
                (floor_of(row).map_err(not_applied)?, has_standbys(row).map_err(not_applied)?)
            }
            None => (0, true),
        };
        let mut ledger = Ledger::new(Mark { token: floor, seq: 0 });
        let mut values = HashMap::new();
        for row in &rows {
            if key_of(row).map_err(not_applied)?.is_some() {
                let key = enter(&mut ledger, row)?;
                if let Some(value) = value_of(row).map_err(not_applied)? {
                    values.insert(key, value);
                }
            }
        }
        Ok(Looked { ledger, values, has_standbys })
    }
}

/// In the order in which every fencepost locks.
pub(super) fn sorted_keys<'a>(units: impl Iterator<Item = &'a Unit>) -> Vec<Key> {
    let mut keys: Vec<Key> = units.flat_map(Unit::keys).cloned().collect();
    keys.sort_unstable();
    keys.dedup();
    keys
}

pub(super) fn enter(ledger: &mut Ledger, row: &PgRow) -> Result<Key, StoreError> {
    let name = key_of(row).map_err(not_applied)?.unwrap_or_default();
    let key = Key::new(name).map_err(StoreError::unavailable)?;
    ledger.enter(key.clone(), standing_of(row).map_err(not_applied)?);
    Ok(key)
}
