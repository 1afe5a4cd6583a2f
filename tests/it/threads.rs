//! How many threads serve.

use std::fs;

use futures_util::future::join_all;

use crate::harness::{fencepost::Fencepost, http::answer, store::TestStore};

/// Beside the first, which has the name of the program.
fn more_threads_of(server: &Fencepost) -> usize {
    let threads = fs::read_dir(format!("/proc/{}/task", server.pid())).expect("it runs");
    let name = |thread: fs::DirEntry| fs::read_to_string(thread.path().join("comm"));
    let names = threads.filter_map(|thread| name(thread.ok()?).ok());
    names.filter(|name| name.starts_with("serve-")).count()
}

#[tokio::test]
async fn there_are_as_many_as_it_was_told() {
    let stores = [TestStore::sqlite(), TestStore::sqlite()];
    let one = Fencepost::with(&stores[0], &["--threads", "1"]).await;
    let many = Fencepost::with(&stores[1], &["--threads", "12"]).await;
    assert_eq!((more_threads_of(&one), more_threads_of(&many)), (0, 11));
}

/// Connections are dealt out among the threads, and all of them write by one lane.
#[tokio::test]
async fn whoever_is_on_another_thread_is_answered_too() {
    for store in [TestStore::sqlite(), TestStore::postgres().await] {
        let server = Fencepost::with(&store, &["--threads", "3", "--authority", "none"]).await;
        let each_on_a_connection_of_its_own = (0..12).map(|number| {
            let client = server.client();
            async move {
                let key = format!("threads/{number}");
                for token in 2..7 {
                    assert!(answer(client.put(&key, token, "x")).await.status < 300);
                    assert_eq!(answer(client.read(&key)).await.text(), "x");
                    assert_eq!(answer(client.put(&key, token - 1, "y")).await.status, 409);
                }
            }
        });
        join_all(each_on_a_connection_of_its_own).await;
    }
}
