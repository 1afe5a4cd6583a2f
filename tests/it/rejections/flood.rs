//! Tens of thousands of refusals: nothing is lost without being counted, and writes go on.

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::rejections;
use crate::harness::{
    fencepost::Fencepost, http::answer, prometheus::Scrape, store::on_each_store,
};

const CONNECTIONS: usize = 20;
const EACH: usize = 1000;

/// All requests at once, then all answers.
pub async fn flood(address: String) -> usize {
    let mut stream = TcpStream::connect(&address).await.expect("a connection");
    let request = format!(
        "PUT /v1/resources/k HTTP/1.1\r\nHost: {address}\r\nX-Fencing-Token: 7\r\n\
         X-Fencing-Client: zombie\r\nContent-Length: 3\r\n\r\nold"
    );
    let (mut reader, mut writer) = stream.split();
    let send = async {
        for _ in 0..EACH {
            writer.write_all(request.as_bytes()).await.expect("sent");
        }
    };
    let receive = async {
        let mut answers = Vec::new();
        let refusal = b"HTTP/1.1 409";
        let mut refused = 0;
        while refused < EACH {
            assert!(reader.read_buf(&mut answers).await.expect("answers") > 0, "{refused}");
            refused += answers.windows(refusal.len()).filter(|text| text == refusal).count();
            let rest = answers.len().saturating_sub(refusal.len() - 1);
            answers.drain(..rest);
        }
        refused
    };
    tokio::join!(send, receive).1
}

on_each_store! {
    async fn what_is_refused_is_recorded_or_counted_and_writes_go_on(store: TestStore) {
        let server = Fencepost::on(&store).await;
        let client = server.client();
        assert_eq!(answer(client.put("k", 9, "new")).await.status, 201);
        let floods: Vec<_> =
            (0..CONNECTIONS).map(|_| tokio::spawn(flood(server.address.clone()))).collect();
        // The holder does not notice.
        let mut written = 0;
        while !floods.iter().all(tokio::task::JoinHandle::is_finished) || written < 10 {
            assert_eq!(answer(client.put("k", 9, "more")).await.status, 200);
            written += 1;
        }
        let mut refused = 0;
        for flood in floods {
            refused += flood.await.expect("no panic");
        }
        assert_eq!(refused, CONNECTIONS * EACH);

        let newest = rejections(&client, "?limit=1").await.remove(0);
        let id = newest["id"].as_str().expect("an id");
        let recorded: f64 = id.rsplit('-').next().expect("a number").parse().expect("digits");
        let scrape = Scrape::of(&server).await;
        let dropped = scrape.get("fencepost_rejections_dropped_total{where=\"record\"}");
        #[allow(clippy::cast_precision_loss, reason = "there are twenty thousand")]
        let refused = refused as f64;
        assert!((scrape.rejected("stale-token", "cache") - refused).abs() < 0.5);
        assert!((recorded + dropped - refused).abs() < 0.5, "{recorded} + {dropped}");
        // The log has a few lines, and says how many there are not.
        let lines = server.log().lines().filter(|line| line.contains("a write was refused")).count();
        assert!(lines > 0 && lines < 5000, "{lines}");
        assert!(server.log().contains("more writes were refused than are logged"));
    }
}
