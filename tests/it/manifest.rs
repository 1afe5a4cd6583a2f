//! `fencepost manifest`: what is typed ends up where it belongs, or is refused.
//!
//! That it is the same as what the chart renders, and that Kubernetes takes it, is shown by
//! `make test-chart`.

use crate::harness::fencepost::run;

fn printed(flags: &[&str]) -> String {
    let output = run(&[&["manifest"], flags].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("UTF-8")
}

#[test]
fn what_is_asked_for_is_in_it() {
    let digest = format!("registry.example:5000/fencepost@sha256:{}", "a".repeat(64));
    for kind in [&["--image", &digest][..], &["--image", &digest, "--container"]] {
        let more = ["--store-secret", "db.app", "--store-key", "URI_1"];
        let text =
            printed(&[kind, &more, &["--authority", "etcds://app@e-0:2379,e-1:2379"]].concat());
        assert!(text.contains(&format!("image: \"{digest}\"\n")), "{text}");
        assert!(text.contains("secretName: \"db.app\"\n"), "{text}");
        assert!(text.contains("- key: \"URI_1\"\n"), "{text}");
        assert!(text.contains("- \"--authority=etcds://app@e-0:2379,e-1:2379\"\n"), "{text}");
        assert_eq!(text.contains("restartPolicy: Always"), kind.len() == 2, "{text}");
    }
}

#[test]
fn nothing_is_left_to_fill_in() {
    for flags in [&[][..], &["--container"]] {
        let text = printed(flags);
        assert!(!text.contains("placeholder"), "{text}");
        let image = format!("image: \"fencepost:{}\"", env!("CARGO_PKG_VERSION"));
        assert!(text.contains(&image) && text.contains("--authority=store"), "{text}");
    }
}

#[test]
fn what_would_mean_something_else_is_refused() {
    for (flag, value) in [
        ("--image", ""),
        ("--image", "a\"\n  command: [sh]"),
        ("--image", "a b"),
        ("--image", "-rm"),
        ("--store-secret", "Upper"),
        ("--store-secret", "-a"),
        ("--store-secret", "a\": b"),
        ("--store-key", "a/b"),
        ("--store-key", "../../etc"),
        ("--authority", "etcd"),
        ("--authority", "etcd://app:s3cret@e:2379"),
        ("--authority", "etcd://e\":2379"),
    ] {
        let output = run(&["manifest", flag, value]);
        assert_eq!(output.status.code(), Some(64), "{flag} {value}");
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(!message.contains("s3cret"), "{message}");
    }
}
