//! The rule and a map, and nothing else.

use std::collections::BTreeMap;

use fencepost::{
    fence::{self, Judgement, Standing, Verdict},
    store::{Listed, Settled, Snapshot},
    token::{Key, Mark},
    write::{Change, Value, Write},
};

use super::history::RealUnit;

#[derive(Clone)]
pub struct Model {
    floor: i64,
    rows: BTreeMap<Key, Row>,
}

#[derive(Clone, Default)]
struct Row {
    standing: Standing,
    value: Option<Value>,
}

impl Model {
    pub fn new(floor: i64) -> Self {
        Self { floor, rows: BTreeMap::new() }
    }

    pub fn floor(&self) -> i64 {
        self.floor
    }

    pub fn raise_floor(&mut self, token: i64) {
        self.floor = self.floor.max(token);
    }

    /// Drops the marks of absent keys below `bound`. With no such mark of its own, it is up to
    /// `others`: where the tombstones of earlier cases bring the floor to.
    pub fn compact(&mut self, bound: i64, others: i64) -> i64 {
        let absent = self.rows.values().filter(|row| row.value.is_none());
        let tokens = absent.map(|row| row.standing.mark.token).filter(|token| *token < bound);
        match tokens.max() {
            Some(highest) => self.raise_floor(highest + 1),
            None => self.raise_floor(others.min(bound)),
        }
        let floor = self.floor;
        self.rows.retain(|_, row| row.value.is_some() || row.standing.mark.token >= floor);
        floor
    }

    pub fn settle(&mut self, unit: &RealUnit) -> Settled {
        let before = self.rows.clone();
        let mut judgements = Vec::new();
        for (index, write) in unit.writes.iter().enumerate() {
            let mut judgement = self.write(write);
            if judgement.refusal().is_some() {
                // A batch that is refused changes nothing at all.
                if unit.writes.len() > 1 {
                    self.rows = before;
                    judgement.key = self.read(&write.key).standing;
                    let scope = write.scope.as_ref().map(|scope| self.row(scope).standing.mark);
                    judgement.guard = judgement.key.mark.max(scope.unwrap_or(Mark::UNSEEN));
                }
                return Settled::Refused { index, judgement };
            }
            judgements.push(judgement);
        }
        let value = self.row(&unit.writes[0].key).value.filter(|_| unit.read_back);
        Settled::Applied { judgements, value }
    }

    fn write(&mut self, write: &Write) -> Judgement {
        let mut row = self.row(&write.key);
        let scope = write.scope.as_ref().map(|scope| self.row(scope).standing.mark);
        let judgement = fence::judge(write, &row.standing, scope, self.floor_mark());
        if !judgement.passed_the_fence() {
            return judgement;
        }
        row.standing = judgement.key;
        match (&write.change, judgement.verdict) {
            (Change::Put(value), Verdict::Accepted) => row.value = Some(value.clone()),
            (Change::Delete, Verdict::Accepted) => row.value = None,
            _ => {}
        }
        self.rows.insert(write.key.clone(), row);
        if let Some(scope) = &write.scope {
            let mut row = self.row(scope);
            row.standing = fence::seen(&row.standing, write.token);
            self.rows.insert(scope.clone(), row);
        }
        judgement
    }

    pub fn read(&self, key: &Key) -> Snapshot {
        let Row { mut standing, value } = self.row(key);
        let own = standing.mark.token;
        standing.mark = standing.mark.max(self.floor_mark());
        let size = value.as_ref().map_or(0, |value| value.body.len() as u64);
        Snapshot { standing, own, value, size, has_standbys: false }
    }

    pub fn list(&self) -> Vec<Listed> {
        let listed = |(key, row): (&Key, &Row)| {
            let value = row.value.as_ref()?;
            Some(Listed {
                key: key.as_str().to_owned(),
                version: row.standing.version,
                token: row.standing.mark.token.max(self.floor),
                content_type: value.content_type.clone(),
                size: i64::try_from(value.body.len()).expect("a small body"),
            })
        };
        self.rows.iter().filter_map(listed).collect()
    }

    fn row(&self, key: &Key) -> Row {
        self.rows.get(key).cloned().unwrap_or_default()
    }

    fn floor_mark(&self) -> Mark {
        Mark { token: self.floor, seq: 0 }
    }
}
