//! Writes JSON so that no character of it can steer a terminal or reorder a line.
//!
//! JSON wants only the lowest 32 characters escaped. Others are control characters for a terminal all the same, or
//! change the direction of what is shown, and a client may have chosen them. Outside of strings JSON has none of them, so
//! each can be replaced by its escape wherever it stands; a reader of the JSON gets the same value.

use std::{
    fmt::Write as _,
    io::{self, Stderr, Write},
};

use tracing_subscriber::fmt::MakeWriter;

/// Standard error. Each event arrives in one piece.
pub struct EscapedStderr;

pub struct Escaped<W>(W);

impl<'a> MakeWriter<'a> for EscapedStderr {
    type Writer = Escaped<Stderr>;

    fn make_writer(&'a self) -> Self::Writer {
        Escaped(io::stderr())
    }
}

impl<W: Write> Write for Escaped<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match std::str::from_utf8(bytes) {
            Ok(text) if text.contains(steers_a_terminal) => {
                self.0.write_all(escape(text).as_bytes())?;
            }
            _ => self.0.write_all(bytes)?,
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Control characters, but for the end of the line; separators of lines; and marks of direction.
fn steers_a_terminal(character: char) -> bool {
    (character.is_control() && character != '\n')
        || matches!(character, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

fn escape(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len() + 16), |mut escaped, character| {
        if steers_a_terminal(character) {
            // To write to a string does not fail.
            let _ = write!(escaped, "\\u{:04x}", u32::from(character));
        } else {
            escaped.push(character);
        }
        escaped
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_steers_a_terminal_is_escaped_and_means_the_same() {
        let value = "evil\u{9b}31m\u{202e}\u{7f}\u{2028} für orders/42";
        let line = format!("{{\"client\":\"{value}\"}}\n");
        let mut written = Vec::new();
        let taken = Escaped(&mut written).write(line.as_bytes()).unwrap();
        assert_eq!(taken, line.len());
        let written = String::from_utf8(written).unwrap();
        assert!(!written.trim_end().contains(steers_a_terminal), "{written:?}");
        assert!(written.contains("für orders/42") && written.ends_with("}\n"), "{written:?}");
        let read: serde_json::Value = serde_json::from_str(&written).unwrap();
        assert_eq!(read["client"], value);
    }
}
