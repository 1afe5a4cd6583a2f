//! How many threads serve.

use std::fs;

use crate::harness::{fencepost::Fencepost, store::TestStore};

/// Those of the runtime; a few more may have looked up a name or read a file.
fn threads_of(server: &Fencepost) -> usize {
    let threads = fs::read_dir(format!("/proc/{}/task", server.pid())).expect("it runs");
    let name = |thread: fs::DirEntry| fs::read_to_string(thread.path().join("comm"));
    let names = threads.filter_map(|thread| name(thread.ok()?).ok());
    names.filter(|name| name.starts_with("tokio")).count()
}

#[tokio::test]
async fn there_are_as_many_as_it_was_told() {
    let stores = [TestStore::sqlite(), TestStore::sqlite()];
    let one = Fencepost::with(&stores[0], &["--threads", "1"]).await;
    let many = Fencepost::with(&stores[1], &["--threads", "12"]).await;
    let counts = (threads_of(&one), threads_of(&many));
    assert!(counts.0 < 12 && counts.1 >= 12, "{counts:?}");
}
