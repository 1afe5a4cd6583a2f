//! Reads that come together share a statement, and each is answered for itself.

use fencepost::{
    store::Unit,
    token::{Key, Token},
    write::Write,
};

use crate::harness::{blocker::Blocker, fencepost::Fencepost, http::answer, store::TestStore};

#[tokio::test]
async fn reads_that_come_together_are_answered_together() {
    let store = TestStore::postgres().await;
    // One thread has one lane for reads.
    let server = Fencepost::with(&store, &["--threads", "1"]).await;
    let client = server.client();
    let large = "l".repeat(300 << 10);
    for number in 0..10 {
        let put = client.put(&format!("key/{number}"), number + 1, "").body(number.to_string());
        assert_eq!(answer(put).await.status, 201);
    }
    assert_eq!(answer(client.put("large", 1, "").body(large.clone())).await.status, 201);
    assert_eq!(answer(client.claim("claimed", 4)).await.status, 200);
    let everything = "LOCK TABLE fencepost.resources IN ACCESS EXCLUSIVE MODE";
    let blocker = Blocker::holding(&store.url, everything).await;
    let read = |key: &str| tokio::spawn(answer(client.read(key)));
    let first = [read("key/0"), read("key/0")];
    blocker.until_waiting(1).await;
    let reads: Vec<_> = (0..30).map(|number| read(&format!("key/{}", number % 10))).collect();
    let odd = [read("large"), read("claimed"), read("nothing"), read("large")];
    blocker.release().await;
    for read in first {
        assert_eq!(read.await.unwrap().text(), "0");
    }
    for (number, read) in reads.into_iter().enumerate() {
        let read = read.await.unwrap();
        assert_eq!(read.text(), (number % 10).to_string());
        assert_eq!(read.header("x-fencing-mark"), Some((number % 10 + 1).to_string().as_str()));
    }
    let [large_one, claimed, nothing, large_too] = odd;
    assert_eq!(large_one.await.unwrap().text(), large);
    assert_eq!(large_too.await.unwrap().text(), large);
    let claimed = claimed.await.unwrap();
    assert_eq!((claimed.status, claimed.header("x-fencing-mark")), (404, Some("4")));
    let nothing = nothing.await.unwrap();
    assert_eq!((nothing.status, nothing.header("x-fencing-mark")), (404, Some("0")));
}

/// Where nothing gathers, too.
#[tokio::test]
async fn each_store_reads_keys_together_in_their_order() {
    let key = |name: &str| Key::new(name).unwrap();
    for held in [TestStore::sqlite(), TestStore::postgres().await] {
        let store = held.open().await;
        let mut session = store.connect().await.unwrap();
        let claims = ["a", "b"].map(|name| {
            let token = Token::new(i64::from(name.as_bytes()[0])).unwrap();
            Unit::single(Write::claim(key(name), token))
        });
        assert!(session.settle(&claims).await.iter().all(Result::is_ok));
        let read = session.read_together(&["b", "nothing", "a"].map(key), 0).await.unwrap();
        let marks: Vec<_> = read.iter().map(|snapshot| snapshot.own).collect();
        assert_eq!(marks, [i64::from(b'b'), 0, i64::from(b'a')]);
    }
}
