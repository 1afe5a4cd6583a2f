//! Who was refused, as they have proved it: in the record, the store, the log and the command.

use serde_json::json;

use crate::harness::{
    access::Access,
    eventually,
    fencepost::{Fencepost, run},
    http::answer,
    store::on_each_store,
};

const POLICY: &str =
    "[[rule]]\nidentity = \"*\"\nprefixes = [\"\"]\nrights = [\"read\", \"write\", \"admin\"]\n";

on_each_store! {
    async fn a_rejection_says_who_it_was(store: TestStore) {
        let access = Access::new();
        let token = access.token("orders");
        let bearer = access.write("bearer", &token);
        let policy = access.write("policy", POLICY);
        let flags = ["--tokens-file", &access.path("tokens"), "--policy", &policy];
        let mut server = Fencepost::with(&store, &flags).await;
        let client = server.client().bearing(&token);
        assert_eq!(answer(client.put("k", 9, "new")).await.status, 201);
        let stale = client.put("k", 7, "old").header("X-Fencing-Client", "somebody else");
        assert_eq!(answer(stale).await.status, 409);
        let told = answer(client.get("/v1/rejections")).await.json();
        assert_eq!(told["rejections"][0]["identity"], json!("orders"));
        assert_eq!(told["rejections"][0]["client"], json!("somebody else"));
        eventually("it is logged", || async {
            server.log().lines().any(|line| {
                line.contains("a write was refused") && line.contains(r#""identity":"orders""#)
            })
        })
        .await;
        let url = format!("http://{}", server.address);
        let output = run(&["rejections", "--url", &url, "--bearer-file", &bearer, "-o", "table"]);
        let table = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(table.contains("orders (somebody else)"), "{table}");

        server.signal(nix::sys::signal::Signal::SIGTERM);
        assert!(server.wait().success());
        let server = Fencepost::with(&store, &flags).await;
        let kept = answer(server.client().bearing(&token).get("/v1/rejections")).await.json();
        assert_eq!(kept["rejections"], told["rejections"]);
    }
}
