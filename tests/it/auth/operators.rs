//! The admin listener: probes and metrics for everybody, the page and the rejections for operators.

use std::net::IpAddr;

use crate::harness::{
    access::{Access, Ca, flags},
    elsewhere::another_address,
    fencepost::Fencepost,
    http::{Client, answer},
    store::TestStore,
};

const POLICY: &str = "[[rule]]\nidentity = \"operator\"\nprefixes = [\"\"]\nrights = [\"admin\"]\n\
     [[rule]]\nidentity = \"some\"\nprefixes = [\"a/\"]\nrights = [\"admin\"]\n";

const SHOWN: [&str; 3] = ["/", "/page/state", "/v1/rejections"];
const OPEN: [&str; 4] = ["/livez", "/readyz", "/startupz", "/metrics"];

fn from_elsewhere(server: &Fencepost, address: IpAddr) -> String {
    let port = server.admin.rsplit_once(':').unwrap().1;
    format!("{address}:{port}")
}

#[tokio::test]
async fn only_probes_and_metrics_are_shown_to_other_machines() {
    let address = another_address();
    let store = TestStore::sqlite();
    let names = ["--admin-listen=0.0.0.0:0", "--admin-hosts=fence.example"];
    for flags in [&names[..1], &names] {
        let server = Fencepost::with(&store, flags).await;
        let elsewhere = Client::new(&from_elsewhere(&server, address));
        for path in SHOWN {
            assert_eq!(answer(elsewhere.get(path)).await.status, 404, "{path}");
            let here = server.admin.replace("0.0.0.0", "127.0.0.1");
            assert_eq!(answer(Client::new(&here).get(path)).await.status, 200, "{path}");
        }
        for path in OPEN {
            assert_eq!(answer(elsewhere.get(path)).await.status, 200, "{path}");
        }
    }
    // As before there was authentication, for those who accept it in so many words.
    let server = Fencepost::with(&store, &[&names[..], &["--insecure"]].concat()).await;
    let elsewhere = Client::new(&from_elsewhere(&server, address));
    assert_eq!(answer(elsewhere.get("/page/state")).await.status, 200);
}

#[tokio::test]
async fn an_operator_can_prove_it_over_tls() {
    let address = another_address();
    let (store, access, ca) = (TestStore::sqlite(), Access::new(), Ca::new("ours"));
    let tokens = ["operator", "some"].map(|identity| access.token(identity));
    let policy = access.write("policy", POLICY);
    let (certificate, key) = ca.issue(&[rcgen::SanType::IpAddress(address)]);
    let tls = [
        "--tls-cert".into(),
        access.write("server.pem", certificate),
        "--tls-key".into(),
        access.write("server.key", key),
    ];
    let path = access.path("tokens");
    let given =
        ["--tokens-file", &path, "--policy", &policy, "--admin-tls", "--admin-listen=0.0.0.0:0"];
    let server = Fencepost::start(&store.url, &[&flags(&tls)[..], &given].concat());
    let stranger = ca.client(&from_elsewhere(&server, address), &[]);
    let [operator, some] = tokens.map(|token| stranger.bearing(&token));
    for path in OPEN {
        assert!(answer(stranger.get(path)).await.status != 401, "{path}");
    }
    for path in SHOWN {
        assert_eq!(answer(stranger.get(path)).await.status, 401, "{path}");
        assert_eq!(answer(stranger.bearing("fp_wrong").get(path)).await.status, 401, "{path}");
        assert_eq!(answer(some.get(path)).await.status, 403, "{path}");
        assert_eq!(answer(operator.get(path)).await.status, 200, "{path}");
    }
}
