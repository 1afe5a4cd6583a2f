//! Which server a session writes to: one that has taken over from another may lack its last commits.

/// What a database says of itself. The same for ever where there is only one file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lineage {
    /// The server, and its life since it was last promoted or restored.
    pub here: String,
    /// The one that has written last, as far as this one knows; `None` before the first time.
    pub recorded: Option<String>,
    /// Whether that is this one.
    pub entered: bool,
}
