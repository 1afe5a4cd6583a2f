//! The life of a pod, without a cluster: the kubelet's part is played here, with real processes.
//!
//! A native sidecar is ready before the application starts, and is told to end after it has ended. A
//! plain container is told at the same moment. Either way, what an application writes while it
//! drains is not lost, and everybody ends with 0.

use std::process::{Child, Command, Output, Stdio};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tokio::{io::AsyncWriteExt, net::TcpStream};

use crate::harness::{
    bound_command, eventually,
    fencepost::{BINARY, Fencepost, run, run_with},
    free_port,
    http::{Client, answer, read_answer, text},
    spawn_bound_to_us,
    store::{TestStore, on_each_store},
};

/// The application of the example chart: leads under a lock, and writes once more while it ends.
const APPLICATION: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/charts/example/files/application.sh");
const LOCK: &str = "example/leader";

/// As the chart starts it; a lock table in the store hands out the tokens.
async fn sidecar(store: &TestStore) -> Fencepost {
    let server = Fencepost::start(&store.url, &["--authority", "store", "--drain", "10s"]);
    // What the startup probe of the chart asks for; only then is the application started.
    eventually("the startup probe succeeds", || async {
        let probe = server.admin_client().get("/startupz").send().await;
        probe.is_ok_and(|answer| answer.status() == 200)
    })
    .await;
    server
}

fn application(server: &Fencepost) -> Child {
    let mut command = bound_command("sh", None);
    command
        .arg(APPLICATION)
        .env("FENCEPOST_URL", format!("http://{}", server.address))
        .env("LOCK", LOCK)
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    spawn_bound_to_us(command).expect("the application starts")
}

fn terminate(process: &Child) {
    let pid = i32::try_from(process.id()).expect("a process id");
    kill(Pid::from_raw(pid), Signal::SIGTERM).expect("the process is there");
}

/// Waits for the end of the application without standing in the way of the test's own tasks.
async fn ended(application: Child) -> Output {
    let waiting = tokio::task::spawn_blocking(move || application.wait_with_output());
    waiting.await.expect("no panic").expect("the application ends")
}

async fn value(client: &Client) -> String {
    answer(client.read(LOCK)).await.text()
}

on_each_store! {
    async fn a_native_sidecar_outlives_its_application(store: TestStore) {
        let mut server = sidecar(&store).await;
        let client = server.client();
        let application = application(&server);
        eventually("it works", || async { value(&client).await == "working" }).await;

        // The pod is deleted: the kubelet tells the application, and nobody else yet.
        terminate(&application);
        let output = ended(application).await;
        assert_eq!(output.status.code(), Some(0));
        server.signal(Signal::SIGTERM);
        assert_eq!(server.wait().code(), Some(0), "{}", server.log());

        // Everything that it was told was written is there, its very last write too.
        let printed = String::from_utf8(output.stdout).expect("UTF-8");
        let written = printed.rsplit("handed over after ").next().and_then(|rest| rest.split(' ').next());
        let again = sidecar(&store).await;
        assert_eq!(value(&again.client()).await, "handed over");
        let mark = answer(again.client().get(&format!("/v1/marks/{LOCK}"))).await.json();
        assert_eq!(Some(mark["seq"].to_string().as_str()), written, "{printed}");
        // The lock was given back, so the next one need not wait for a lease to end.
        let next = run(&["lock", "--url", &format!("http://{}", again.address), LOCK]);
        assert!(next.status.success(), "{}", String::from_utf8_lossy(&next.stderr));
    }
}

on_each_store! {
    async fn a_plain_container_serves_an_application_that_drains_beside_it(store: TestStore) {
        let mut server = Fencepost::with(&store, &["--drain", "60s"]).await;
        // The application is in the middle of a write, which the test ends when it likes: however slow
        // the machine is, it is never quiet.
        let request = text("PUT", "/v1/resources/upload", &["X-Fencing-Token: 1"], "last");
        let mut upload = TcpStream::connect(&server.address).await.expect("it listens");
        upload.write_all(&request.as_bytes()[..request.len() - 1]).await.expect("it is sent");

        // Both are told at once. The application has more to write, on connections old and new.
        server.signal(Signal::SIGTERM);
        eventually("it is unready", || async {
            let probe = server.admin_client().get("/readyz").send().await;
            probe.is_ok_and(|answer| answer.status() == 503)
        })
        .await;
        for seq in 1..=20 {
            let write = server.client().put("drained", 1, "v").header("X-Fencing-Seq", seq);
            assert!((200..300).contains(&answer(write).await.status), "write {seq}");
        }
        upload.write_all(&request.as_bytes()[request.len() - 1..]).await.expect("it is sent");
        assert_eq!(read_answer(&mut upload).await.status, 201);
        assert_eq!(server.wait().code(), Some(0), "{}", server.log());

        let again = Fencepost::on(&store).await;
        assert_eq!(answer(again.client().get("/v1/marks/drained")).await.json()["seq"], 20);
        assert_eq!(answer(again.client().read("upload")).await.text(), "last");
    }
}

#[tokio::test]
async fn a_job_ends_and_its_sidecar_is_not_in_the_way() {
    let store = TestStore::sqlite();
    let mut server = sidecar(&store).await;
    let url = format!("http://{}", server.address);
    // The example's CronJob.
    let put = [BINARY, "put", "example/nightly", "done"];
    let job =
        run_with(&[&["run", "--lock", "example/nightly", "--"][..], &put].concat(), |command| {
            command.env("FENCEPOST_URL", &url);
        });
    assert!(job.status.success(), "{}", String::from_utf8_lossy(&job.stderr));
    server.signal(Signal::SIGTERM);
    assert_eq!(server.wait().code(), Some(0), "{}", server.log());
}

#[tokio::test]
async fn the_hook_of_a_plain_container_waits_for_the_store() {
    let store = TestStore::postgres().await;
    let admin = format!("127.0.0.1:{}", free_port());
    let mut hook = Command::new(BINARY)
        .args(["healthcheck", "--wait", "10m", "--admin-url", &format!("http://{admin}")])
        .stdout(Stdio::null())
        .spawn()
        .expect("the hook starts");
    // Nobody listens yet: asking once would not do.
    let server = Fencepost::with(&store, &["--admin-listen", &admin]).await;
    eventually("the hook is done", || {
        let done = hook.try_wait().expect("it can be asked");
        async move { done.is_some_and(|status| status.success()) }
    })
    .await;
    drop(server);
}

#[tokio::test]
async fn several_servers_on_a_new_file_all_serve() {
    for _ in 0..4 {
        let store = TestStore::sqlite();
        let servers: Vec<_> = (0..3)
            .map(|_| Fencepost::start_as_it_is(&store.url, &["--authority", "none"]))
            .collect();
        for server in &servers {
            server.wait_until_ready().await;
        }
    }
}
