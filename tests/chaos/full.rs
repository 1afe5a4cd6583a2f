//! A full disk, seen from close by: whoever writes is told so, nothing that was acknowledged is lost, and
//! once there is room again the same fencepost goes on.

use std::collections::BTreeMap;

use crate::it::harness::{
    Surroundings,
    disk::Disk,
    eventually,
    fencepost::Fencepost,
    http::{Client, answer},
    postgres::Postgres,
};

/// Enough to need another page soon.
const VALUE: &str = match str::from_utf8(&[b'x'; 20_000]) {
    Ok(value) => value,
    Err(_) => "",
};

const WRITES: usize = 60;

pub async fn sqlite() -> Result<(), String> {
    let disk = Disk::new(8);
    let store = format!("sqlite:{}", disk.path().join("store.db").display());
    let server = Fencepost::start(&store, &[]);
    server.wait_until_ready().await;
    fills_and_recovers(&server, &disk).await
}

/// Where only tables cannot grow: its log has a place of its own.
pub async fn postgres() -> Result<(), String> {
    let disk = Disk::new(160);
    let directory = disk.path().to_owned();
    let settings = ["fsync=off", "wal_recycle=on", "min_wal_size=64MB", "max_wal_size=64MB"];
    let postgres = Postgres::start_in(&Surroundings::default(), directory, &settings).await;
    let server = Fencepost::start(&postgres.database("").await, &[]);
    server.wait_until_ready().await;
    fills_and_recovers(&server, &disk).await
}

async fn fills_and_recovers(server: &Fencepost, disk: &Disk) -> Result<(), String> {
    let client = server.client();
    let mut acknowledged = BTreeMap::new();
    write_some(&client, "before", &mut acknowledged).await?;
    disk.fill();
    let refused = write_some(&client, "meanwhile", &mut acknowledged).await?;
    if refused == 0 {
        return Err("the disk was full, and every write went through".into());
    }
    disk.free();
    eventually("it writes again", || async {
        [200, 201].contains(&answer(client.put("after", 1, VALUE)).await.status)
    })
    .await;
    for (key, version) in acknowledged {
        let read = answer(client.read(&key)).await;
        let etag = format!("\"{version}\"");
        if read.status != 200 || read.header("etag") != Some(&etag) {
            return Err(format!("{key} was acknowledged as {etag}, and is {}", read.text()));
        }
    }
    Ok(())
}

/// How many were turned away. Those that were not are noted with their version.
async fn write_some(
    client: &Client,
    stem: &str,
    acknowledged: &mut BTreeMap<String, i64>,
) -> Result<usize, String> {
    let mut refused = 0;
    for number in 0..WRITES {
        let key = format!("{stem}-{number}");
        let written = answer(client.put(&key, 1, VALUE)).await;
        match written.status {
            200 | 201 => {
                let version = written.json()["version"].as_i64().unwrap_or(0);
                acknowledged.insert(key, version);
            }
            503 | 504 => refused += 1,
            other => return Err(format!("{other} while the disk is full: {}", written.text())),
        }
    }
    Ok(refused)
}
