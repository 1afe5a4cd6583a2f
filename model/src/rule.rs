//! The rule, in small numbers: the same as `judge` in `src/fence.rs`, whose tests compare the two.

pub type Token = u8;
/// 0 where the holder uses none.
pub type Seq = u8;
/// A value: which contributions are in it. No bits, no value.
pub type Bits = u16;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mark {
    pub token: Token,
    pub seq: Seq,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Change {
    Claim,
    Put(Bits),
    Delete,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Write {
    pub token: Token,
    pub seq: Seq,
    pub change: Change,
    /// The rule `above`: the token must be new to the key. A grant's claim has it.
    pub above: bool,
}

/// What is stored of a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Row {
    pub mark: Mark,
    pub value: Bits,
    /// The write that set the mark, if a seq ordered it: the product keeps a digest of it.
    pub last: Option<Change>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verdict {
    Accepted,
    Replayed,
    Stale,
    OutOfOrder,
    SeqReused,
}

impl Verdict {
    pub fn is_success(self) -> bool {
        matches!(self, Self::Accepted | Self::Replayed)
    }
}

/// `guard`: the highest of the scope's token and the floor.
pub fn judge(write: Write, row: Row, guard: Token) -> (Verdict, Row) {
    if write.token < row.mark.token.max(guard) {
        return (Verdict::Stale, row);
    }
    if write.token == row.mark.token {
        match same_holder_again(write, row) {
            Verdict::Accepted => {}
            other => return (other, row),
        }
    }
    (Verdict::Accepted, changed(write, row))
}

fn same_holder_again(write: Write, row: Row) -> Verdict {
    match write.seq {
        0 if write.above => Verdict::Stale,
        0 if write.change == Change::Claim || row.mark.seq == 0 => Verdict::Accepted,
        seq if seq < row.mark.seq => Verdict::OutOfOrder,
        seq if seq > row.mark.seq => Verdict::Accepted,
        _ if row.last == Some(write.change) => Verdict::Replayed,
        _ => Verdict::SeqReused,
    }
}

/// The row after the write, whether the fence would have let it pass or not.
pub fn changed(write: Write, row: Row) -> Row {
    if write.change == Change::Claim && write.seq == 0 {
        return seen(row, write.token);
    }
    Row {
        mark: Mark { token: write.token, seq: write.seq },
        value: match write.change {
            Change::Claim => row.value,
            Change::Put(value) => value,
            Change::Delete => 0,
        },
        last: (write.seq > 0).then_some(write.change),
    }
}

/// A holder with this token has been seen.
pub fn seen(row: Row, token: Token) -> Row {
    if row.mark.token >= token {
        return row;
    }
    Row { mark: Mark { token, seq: 0 }, last: None, ..row }
}
