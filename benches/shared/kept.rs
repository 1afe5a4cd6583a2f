//! What a full run leaves for the report, which is written when all parts are there. It lies under
//! `target`, so it is never committed.

use std::{fs, path::PathBuf};

fn place(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("bench").join(name)
}

pub fn keep(name: &str, text: &str) -> std::io::Result<()> {
    let place = place(name);
    fs::create_dir_all(place.parent().unwrap_or(&place))?;
    fs::write(place, text)
}

pub fn kept(name: &str) -> Option<String> {
    fs::read_to_string(place(name)).ok()
}
