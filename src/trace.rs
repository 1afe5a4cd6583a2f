//! W3C trace context: the `traceparent` header, by which the steps of one request through many
//! services are found again.

use std::fmt;

use serde::{Serialize, Serializer};

/// The name of a whole trace: 16 bytes, not all of them zero.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TraceId([u8; 16]);

/// The name of one step of it: 8 bytes, not all of them zero.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SpanId([u8; 8]);

/// Where a request stands in a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceParent {
    pub trace: TraceId,
    /// The caller's step.
    pub span: SpanId,
    /// Whether the caller keeps this trace.
    pub sampled: bool,
}

impl TraceParent {
    /// Strictly as the standard has it; `None` for anything else, which is then to be ignored.
    pub fn parse(text: &str) -> Option<Self> {
        let (version, rest) = (text.get(..2)?, text.get(2..)?);
        let version: [u8; 1] = hex(version)?;
        // Later versions may append fields. This one has none, and 255 is forbidden.
        let known = rest.get(..53)?;
        match (version, rest.get(53..)?) {
            ([0], "") => {}
            ([1..=254], more) if more.is_empty() || more.starts_with('-') => {}
            _ => return None,
        }
        let mut fields = known.strip_prefix('-')?.split('-');
        let trace = TraceId::parse(fields.next()?)?;
        let span = SpanId::parse(fields.next()?)?;
        let [flags] = hex(fields.next()?)?;
        fields.next().is_none().then_some(Self { trace, span, sampled: flags & 1 == 1 })
    }
}

impl TraceId {
    pub fn random() -> Self {
        Self(fastrand::u128(1..).to_be_bytes())
    }

    pub fn parse(text: &str) -> Option<Self> {
        hex(text).filter(|bytes| *bytes != [0; 16]).map(Self)
    }

    pub fn bytes(self) -> [u8; 16] {
        self.0
    }
}

impl SpanId {
    pub fn random() -> Self {
        Self(fastrand::u64(1..).to_be_bytes())
    }

    fn parse(text: &str) -> Option<Self> {
        hex(text).filter(|bytes| *bytes != [0; 8]).map(Self)
    }

    pub fn bytes(self) -> [u8; 8] {
        self.0
    }
}

/// Lower case only, as the standard demands.
fn hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digits = text.as_bytes();
    if digits.len() != 2 * N {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

fn digit(character: u8) -> Option<u8> {
    match character {
        b'0'..=b'9' => Some(character - b'0'),
        b'a'..=b'f' => Some(character - b'a' + 10),
        _ => None,
    }
}

fn write_hex(bytes: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(&self.0, f)
    }
}

impl fmt::Debug for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(&self.0, f)
    }
}

impl fmt::Debug for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{}-{}-{:02x}", self.trace, self.span, u8::from(self.sampled))
    }
}

impl Serialize for TraceId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn what_the_standard_allows_is_understood() {
        let parent = TraceParent::parse(GOOD).unwrap();
        assert_eq!(parent.to_string(), GOOD);
        assert!(parent.sampled);
        let of_tomorrow = GOOD.replacen("00", "cc", 1);
        assert_eq!(TraceParent::parse(&of_tomorrow), Some(parent));
        assert_eq!(TraceParent::parse(&format!("{of_tomorrow}-more")), Some(parent));
        let unsampled = TraceParent::parse(&GOOD.replace("-01", "-02")).unwrap();
        assert!(!unsampled.sampled);
    }

    #[test]
    fn anything_else_is_ignored() {
        let bad = [
            String::new(),
            "00".into(),
            GOOD.to_uppercase(),
            GOOD.replacen("00", "ff", 1),
            format!("{GOOD}-more"),
            format!("{GOOD}-"),
            format!("{GOOD} "),
            format!("{}more", GOOD.replacen("00", "cc", 1)),
            GOOD.replace('-', "_"),
            "00-00000000000000000000000000000000-b7ad6b7169203331-01".into(),
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01".into(),
            "00-0af7651916cd43dd8448eb211c80319-cb7ad6b7169203331-01".into(),
            "00-0af7651916cd43dd8448eb211c80319ä-b7ad6b7169203331-1".into(),
        ];
        for text in bad {
            assert_eq!(TraceParent::parse(&text), None, "{text}");
        }
    }
}
