//! A SQLite file on a disk that is full: each write that finds no room is told so, and has surely not happened;
//! what is there can be read; and with room, everything goes on by itself.

use crate::harness::{
    disk::Disk,
    eventually,
    fencepost::{Fencepost, run, run_discreetly},
    http::{Answer, answer, insist},
};

/// Enough to need another page soon.
const VALUE: &str = match str::from_utf8(&[b'x'; 20_000]) {
    Ok(value) => value,
    Err(_) => "",
};

async fn readiness(server: &Fencepost) -> (u16, String) {
    let ready = answer(server.admin_client().get("/readyz")).await;
    (ready.status, ready.text())
}

#[track_caller]
fn assert_full(refused: &Answer) {
    assert_eq!((refused.status, refused.problem().as_str()), (503, "store-full"));
    assert_eq!(refused.header("retry-after"), Some("1"));
    let document = refused.json();
    assert_eq!(document["retryable"], true);
    assert!(document["detail"].as_str().is_some_and(|it| it.contains("nothing was changed")));
}

#[tokio::test]
async fn a_full_disk_is_told_and_recovered_from() {
    let disk = Disk::new(8);
    let store = format!("sqlite:{}", disk.path().join("store.db").display());
    let server = Fencepost::start(&store, &[]);
    server.wait_until_ready().await;
    let client = server.client();
    assert_eq!(answer(client.put("before", 1, VALUE)).await.status, 201);
    disk.fill();

    // There may be some room in the files themselves.
    let mut written = Vec::new();
    let refused = loop {
        let key = format!("meanwhile/{}", written.len());
        let put = answer(client.put(&key, 1, VALUE)).await;
        if put.status != 201 {
            assert_full(&put);
            break key;
        }
        written.push(key);
        assert!(written.len() < 1000, "every write goes through");
    };
    let batch = serde_json::json!({"writes": [
        {"key": "batch/1", "token": 1, "value": VALUE}, {"key": "batch/2", "token": 1, "value": VALUE},
    ]});
    assert_full(&answer(client.batch(&batch)).await);
    // Nothing of them is there, and what is there can be read.
    for key in [&refused, "batch/1", "batch/2"] {
        assert_eq!(answer(client.read(key)).await.status, 404, "{key}");
        assert_eq!(client.mark(key).await, (0, 0), "{key}");
    }
    for key in written.iter().map(String::as_str).chain(["before"]) {
        assert_eq!(answer(client.read(key)).await.text(), VALUE, "{key}");
    }
    let (status, text) = readiness(&server).await;
    assert!(status == 503 && text.contains("disk is full"), "{status} {text}");
    let scraped = answer(server.admin_client().get("/metrics")).await.text();
    assert!(scraped.contains("\nfencepost_store_up 0\n"), "{scraped}");
    let admin = format!("http://{}", server.admin);
    let checks = [
        run_discreetly(&["check", "--authority", "none", "--store", &store]),
        run(&["check", "--url", &admin]),
    ];
    for check in checks {
        let said = String::from_utf8_lossy(&check.stdout);
        assert!(said.contains("the disk is full"), "{said}");
        assert_eq!(check.status.code(), Some(1), "{said}");
    }

    disk.free();
    eventually("it is ready again", || async { readiness(&server).await.0 == 200 }).await;
    assert_eq!(answer(client.put(&refused, 1, VALUE)).await.status, 201);
    assert_eq!(answer(client.batch(&batch)).await.status, 200);
    assert_eq!(answer(client.read("before")).await.text(), VALUE);
}

/// Nothing has failed yet, neither before nor after a restart.
#[tokio::test]
async fn a_full_disk_is_unready_before_a_write_fails() {
    let disk = Disk::new(8);
    let store = format!("sqlite:{}", disk.path().join("store.db").display());
    let server = Fencepost::start(&store, &[]);
    server.wait_until_ready().await;
    assert_eq!(answer(server.client().put("before", 1, VALUE)).await.status, 201);
    disk.fill();
    let is_full = |(status, text): (u16, String)| status == 503 && text.contains("disk is full");
    let said = readiness(&server).await;
    assert!(is_full(said.clone()), "{said:?}");
    drop(server);

    let restarted = Fencepost::start_as_it_is(&store, &[]);
    eventually("it says so after a restart", || async { is_full(readiness(&restarted).await) })
        .await;
    assert_eq!(answer(restarted.client().read("before")).await.text(), VALUE);
    disk.free();
    restarted.wait_until_ready().await;
}

/// What is written proves that there is room, however little of it is left.
#[tokio::test]
async fn a_write_that_succeeds_ends_the_trouble() {
    let disk = Disk::new(8);
    let store = format!("sqlite:{}", disk.path().join("store.db").display());
    let server = Fencepost::start(&store, &[]);
    server.wait_until_ready().await;
    let client = server.client();
    disk.fill();
    for number in 0.. {
        let put = answer(client.put(&format!("meanwhile/{number}"), 1, VALUE)).await;
        if put.status != 201 {
            assert_full(&put);
            break;
        }
        assert!(number < 1000, "every write goes through");
    }
    disk.free_some(500);
    assert_eq!(readiness(&server).await.0, 503);
    assert_eq!(answer(client.put("small", 1, "v")).await.status, 201);
    let (status, text) = readiness(&server).await;
    assert_eq!(status, 200, "{text}");
}

#[tokio::test]
async fn lock_requests_name_the_full_disk_and_are_logged_once() {
    let disk = Disk::new(8);
    let store = format!("sqlite:{}", disk.path().join("store.db").display());
    let server = Fencepost::start(&store, &["--authority", "store"]);
    server.wait_until_ready().await;
    let client = server.client();
    disk.fill();
    // There may be some room in the files themselves.
    let mut refused = 0;
    for number in 0.. {
        assert!(number < 5000, "every lock is granted");
        let lock = client.request(reqwest::Method::POST, &format!("/v1/locks/{number}"));
        let asked = answer(lock).await;
        if asked.status == 201 {
            continue;
        }
        assert_eq!(
            (asked.status, asked.problem().as_str()),
            (503, "store-full"),
            "{}",
            asked.text()
        );
        let detail = asked.json()["detail"].as_str().expect("a detail").to_owned();
        let expected = "no lock was granted or changed: the disk of the store has no room left";
        assert!(detail.starts_with(expected), "{detail}");
        refused += 1;
        if refused == 200 {
            break;
        }
    }
    assert_eq!(readiness(&server).await.0, 503);
    let log = server.log();
    let warnings = log.lines().filter(|line| line.contains("\"WARN\"")).count();
    // Of each kind one in ten seconds, however slow the machine is.
    assert!(warnings < 100, "{warnings} for {refused} refused requests:\n{log}");

    disk.free();
    server.wait_until_ready().await;
    let lock = client.request(reqwest::Method::POST, "/v1/locks/afterwards");
    assert_eq!(insist(lock).await.status, 201);
}

/// It is not yet full, and an operator can know in time.
#[tokio::test]
async fn check_warns_before_the_disk_is_full() {
    let disk = Disk::new(8);
    let store = format!("sqlite:{}", disk.path().join("store.db").display());
    let server = Fencepost::start(&store, &[]);
    server.wait_until_ready().await;
    let check = run_discreetly(&["check", "--authority", "none", "--store", &store]);
    let said = String::from_utf8_lossy(&check.stdout);
    assert!(said.contains("only ") && said.contains("are free on the disk"), "{said}");
    assert_eq!(check.status.code(), Some(0), "{said}");
}
