//! `fencepost manifest`: the sidecar as YAML, for those without Helm.
//!
//! The two texts are what the chart's own templates render, with placeholders; `make test-chart`
//! renders them again. What is put in their place is checked first, so that the output is YAML
//! that says what was meant, whatever was typed.

use clap::Args;

use super::{exit::Failure, output};
use crate::settings::AuthorityUrl;

const NATIVE: &str = include_str!("manifest/native.yaml");
const CONTAINER: &str = include_str!("manifest/container.yaml");

#[derive(Args)]
#[command(after_help = "\
Prints a patch for a Deployment, StatefulSet or DaemonSet, also for kustomize:

  kubectl create secret generic fencepost-store --from-literal=url='postgres://…'
  fencepost manifest --image registry.example/fencepost:1.0 > fencepost.yaml
  kubectl patch deployment APP --patch-file fencepost.yaml

The application then finds the server at http://127.0.0.1:7420. The chart can do more: etcd with a
password or certificates, other limits, a shared proxy.")]
pub struct Manifest {
    /// The image to run
    #[arg(
        long,
        value_name = "IMAGE",
        default_value = concat!("fencepost:", env!("CARGO_PKG_VERSION")),
        value_parser = image
    )]
    image: String,

    /// Secret that holds the address of the database
    #[arg(long, value_name = "NAME", default_value = "fencepost-store", value_parser = secret_name)]
    store_secret: String,

    /// Key of the address in that Secret
    #[arg(long, value_name = "KEY", default_value = "url", value_parser = secret_key)]
    store_key: String,

    /// Where tokens come from, as for `serve`; without a password, which anybody could read
    #[arg(long, value_name = "AUTHORITY", default_value = "store", value_parser = authority)]
    authority: String,

    /// A plain container instead of a native sidecar, which needs Kubernetes 1.29
    #[arg(long)]
    container: bool,
}

impl Manifest {
    pub fn run(self) -> Result<(), Failure> {
        let text = if self.container { CONTAINER } else { NATIVE };
        let text = text
            .replace("image-placeholder:0", &self.image)
            .replace("secret-placeholder", &self.store_secret)
            .replace("key-placeholder", &self.store_key)
            .replace("etcd://authority-placeholder:1", &self.authority);
        output::print(&format!(
            "# Fencepost {} beside an application. The Secret {} holds the database's address as {}.\n{text}",
            env!("CARGO_PKG_VERSION"),
            self.store_secret,
            self.store_key,
        ))
    }
}

/// Each stands between double quotes; none of these can end them or mean something else there.
fn of_these(text: &str, more: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || more.contains(c);
    (1..=512).contains(&text.len()) && text.chars().all(fits)
}

fn image(text: &str) -> Result<String, String> {
    let good = of_these(text, "-._/:@") && text.starts_with(|c: char| c.is_ascii_alphanumeric());
    good.then(|| text.into()).ok_or_else(|| "write it as REGISTRY/NAME:TAG".into())
}

fn secret_name(text: &str) -> Result<String, String> {
    let good = of_these(text, "-.")
        && text.len() <= 253
        && !text.contains(char::is_uppercase)
        && !text.starts_with(['-', '.'])
        && !text.ends_with(['-', '.']);
    good.then(|| text.into())
        .ok_or_else(|| "a Secret's name is of small letters, digits, `-` and `.`".into())
}

fn secret_key(text: &str) -> Result<String, String> {
    let good = of_these(text, "-._") && text.len() <= 253;
    good.then(|| text.into()).ok_or_else(|| "a key is of letters, digits, `-`, `_` and `.`".into())
}

fn authority(text: &str) -> Result<String, String> {
    match text.parse::<AuthorityUrl>()? {
        AuthorityUrl::Etcd(url) if url.password.is_some() => {
            Err("an argument of a container is no place for a password; use the chart".into())
        }
        _ if of_these(text, "-._:/,@%[]") => Ok(text.into()),
        _ => Err("it has a character that has no place in an address".into()),
    }
}
