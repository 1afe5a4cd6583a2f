//! How many threads serve.

use std::{
    collections::{BTreeSet, HashSet},
    fs,
};

use futures_util::future::join_all;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

use crate::harness::{
    PATIENCE,
    fencepost::Fencepost,
    http::{answer, text},
    store::TestStore,
};

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

/// How many of its clients' connections each thread waits for, the fewest first. A thread waits by an `epoll`
/// of its own, of which Linux tells what is in it.
fn connections_by_thread(server: &Fencepost) -> Vec<usize> {
    let process = format!("/proc/{}", server.pid());
    let clients = sockets_at(&server.address);
    let link_of = |file: &str| {
        let link = fs::read_link(format!("{process}/fd/{file}")).unwrap_or_default();
        link.display().to_string()
    };
    let files = fs::read_dir(format!("{process}/fd")).expect("it runs").flatten();
    let files = files.map(|file| file.file_name().display().to_string());
    // Each is there twice, with the same in it.
    let waits: BTreeSet<Vec<String>> = files
        .filter(|file| link_of(file) == "anon_inode:[eventpoll]")
        .map(|file| {
            let about = fs::read_to_string(format!("{process}/fdinfo/{file}")).expect("it is open");
            let watched = about.lines().filter_map(|line| line.strip_prefix("tfd:"));
            let mut watched: Vec<String> = watched
                .map(|rest| link_of(rest.split_whitespace().next().unwrap_or_default()))
                .collect();
            watched.sort_unstable();
            watched
        })
        .collect();
    let of_clients =
        |watched: &Vec<String>| watched.iter().filter(|socket| clients.contains(*socket)).count();
    let mut counts: Vec<usize> = waits.iter().map(of_clients).collect();
    counts.sort_unstable();
    counts
}

/// The sockets at the server's end of its connections, as links in `/proc` name them.
fn sockets_at(address: &str) -> HashSet<String> {
    const ESTABLISHED: &str = "01";
    let port: u16 = address.rsplit_once(':').expect("a port").1.parse().expect("a number");
    let port = format!(":{port:04X}");
    let table = fs::read_to_string("/proc/net/tcp").expect("this is Linux");
    let columns = table.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>());
    columns
        .filter(|columns| columns[1].ends_with(&port) && columns[3] == ESTABLISHED)
        .map(|columns| format!("socket:[{}]", columns[9]))
        .collect()
}

/// Of all answers that are whole.
fn etags_in(received: &[u8]) -> Vec<String> {
    let mut etags = Vec::new();
    let mut rest = std::str::from_utf8(received).expect("they are text");
    while let Some((head, after)) = rest.split_once("\r\n\r\n") {
        let header =
            |name: &str| head.lines().find_map(|line| line.strip_prefix(name)).expect(head);
        let length: usize = header("content-length: ").parse().expect("a number");
        let Some(after) = after.get(length..) else { break };
        etags.push(header("etag: ").to_owned());
        rest = after;
    }
    etags
}

struct Connection {
    stream: TcpStream,
    key: String,
    version: i64,
}

impl Connection {
    async fn to(server: &Fencepost, number: usize) -> Self {
        let stream = TcpStream::connect(&server.address).await.expect("it listens");
        Self { stream, key: format!("/v1/resources/{number}"), version: 0 }
    }

    /// Each one when the one before is answered, or all of them ahead.
    async fn ask(&mut self, request: &str, times: usize, ahead: bool, version_rises: bool) {
        let all = if ahead { times } else { 1 };
        for _ in 0..times / all {
            self.stream.write_all(request.repeat(all).as_bytes()).await.expect("it is sent");
            let mut etags = Vec::new();
            let mut received = Vec::new();
            while etags.len() < all {
                let more = timeout(PATIENCE, self.stream.read_buf(&mut received)).await;
                assert!(more.expect("an answer in time").expect("it goes on") > 0, "it was closed");
                etags = etags_in(&received);
            }
            let expected = (0..all).map(|_| {
                self.version += i64::from(version_rises);
                format!("\"{}\"", self.version)
            });
            assert_eq!(etags, expected.collect::<Vec<_>>());
        }
    }

    async fn write(&mut self, times: usize, ahead: bool) {
        let request = text("PUT", &self.key, &["X-Fencing-Token: 5"], "v");
        self.ask(&request, times, ahead, true).await;
    }

    async fn read(&mut self, times: usize, ahead: bool) {
        let request = text("GET", &self.key, &[], "");
        self.ask(&request, times, ahead, false).await;
    }

    async fn be_refused(&mut self, times: usize) {
        let request = text("PUT", &self.key, &["X-Fencing-Token: 4"], "v");
        self.ask(&request, times, false, false).await;
    }
}

/// On two processors. They take along what they have been sent already.
#[tokio::test]
async fn connections_move_to_where_they_are_served_best() {
    let processors = std::thread::available_parallelism().expect("a number").get();
    let of_writers = if processors > 2 { [3, 3] } else { [0, 6] };
    for store in [TestStore::sqlite(), TestStore::postgres().await] {
        let server = Fencepost::with(&store, &["--threads", "2", "--authority", "none"]).await;
        let mut connections = Vec::new();
        for number in 0..6 {
            connections.push(Connection::to(&server, number).await);
        }
        for connection in &mut connections {
            connection.write(1, false).await;
        }
        assert_eq!(connections_by_thread(&server), [3, 3], "they are dealt out");
        for ahead in [false, true] {
            for connection in &mut connections {
                connection.write(30, ahead).await;
                // It moves at its next turn, if not before.
                connection.write(1, false).await;
            }
            assert_eq!(connections_by_thread(&server), of_writers, "who writes is with the lane");
            for connection in &mut connections {
                connection.read(30, ahead).await;
                connection.read(1, false).await;
            }
            assert_eq!(connections_by_thread(&server), [3, 3], "whoever reads is not");
        }
        for connection in &mut connections {
            connection.write(30, false).await;
            connection.be_refused(30).await;
        }
        assert_eq!(connections_by_thread(&server), [3, 3], "nor is whoever is refused");
    }
}
