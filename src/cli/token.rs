//! `fencepost token`.

use std::io::Write;

use clap::Args;

use super::{exit::Failure, output};
use crate::auth::{Identity, tokens};

#[derive(Args)]
#[command(after_help = "\
The token goes to standard output, and nowhere else: it is shown this once. The line for the server's \
--tokens-file goes to standard error. It holds only a digest, so the file is of no use to a thief.

  fencepost token orders > orders.token 2>> tokens
  fencepost get --bearer-file orders.token orders/42

To change a token, add the new line, hand out the new token, then remove the old line. The server reads \
the file anew by itself.")]
pub struct Token {
    /// Whose token it is: the identity that the policy speaks of
    #[arg(value_name = "IDENTITY")]
    identity: String,
}

impl Token {
    pub fn run(self) -> Result<(), Failure> {
        let identity = Identity::checked(&self.identity).ok_or_else(|| {
            Failure::settings(
                "an identity is up to 1024 bytes of text, without space around it or line breaks",
            )
        })?;
        let (token, line) = tokens::mint(&identity).map_err(Failure::failed)?;
        // The line first: a token whose line was lost would be good for nothing.
        let _ = writeln!(std::io::stderr(), "{line}");
        output::print(&format!("{token}\n"))
    }
}
