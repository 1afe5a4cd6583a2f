//! What reads metrics: `promtool`, and a real Prometheus that scrapes a fencepost.

use std::{
    collections::BTreeMap,
    fs,
    io::Write,
    process::{Child, Command, Stdio},
};

use serde_json::Value;
use tempfile::TempDir;

use super::{
    bound_command,
    fencepost::Fencepost,
    free_port,
    http::{Client, answer},
    spawn_bound_to_us,
};

/// One look at a server's metrics.
#[derive(Debug, PartialEq)]
pub struct Scrape(BTreeMap<String, f64>);

impl Scrape {
    pub async fn of(server: &Fencepost) -> Self {
        let scraped = answer(server.admin_client().get("/metrics")).await;
        assert_eq!(scraped.status, 200, "{}", scraped.text());
        Self::parse(&scraped.text())
    }

    pub fn parse(text: &str) -> Self {
        let samples = text.lines().filter(|line| !line.starts_with('#')).map(|line| {
            let (series, value) = line.rsplit_once(' ').expect("a sample");
            (series.to_owned(), value.parse().expect("a number"))
        });
        Self(samples.collect())
    }

    pub fn series(&self) -> Vec<&str> {
        self.0.keys().map(String::as_str).collect()
    }

    pub fn get(&self, series: &str) -> f64 {
        *self.0.get(series).unwrap_or_else(|| panic!("no {series} in {:?}", self.series()))
    }

    pub fn writes(&self, op: &str, outcome: &str) -> f64 {
        self.get(&format!("fencepost_writes_total{{op=\"{op}\",outcome=\"{outcome}\"}}"))
    }

    pub fn rejected(&self, reason: &str, decided_by: &str) -> f64 {
        let labels = format!("reason=\"{reason}\",decided_by=\"{decided_by}\"");
        self.get(&format!("fencepost_rejected_writes_total{{{labels}}}"))
    }

    /// What has risen since then, without the buckets and sums of histograms.
    pub fn since(&self, before: &Self) -> BTreeMap<String, f64> {
        let counted = |series: &str| !series.contains("_bucket") && !series.contains("_sum");
        self.0
            .iter()
            .map(|(series, value)| (series.clone(), value - before.get(series)))
            .filter(|(series, rise)| rise.abs() > 0.0 && counted(series))
            .collect()
    }
}

/// What `promtool check metrics` has to say about a scrape; nothing, if all is well.
pub fn promtool_complains(text: &str) -> String {
    let mut promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool is installed: run `make setup`");
    promtool.stdin.take().expect("its input").write_all(text.as_bytes()).expect("it reads");
    let output = promtool.wait_with_output().expect("promtool ends");
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    assert_eq!(output.status.success(), said.is_empty(), "{said}");
    said
}

/// A Prometheus that scrapes one fencepost, often.
pub struct Prometheus {
    process: Child,
    client: Client,
    _directory: TempDir,
}

impl Prometheus {
    pub fn scraping(server: &Fencepost) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let file = directory.path().join("prometheus.yml");
        let text = format!(
            "global: {{scrape_interval: 200ms, scrape_timeout: 200ms}}\nscrape_configs:\n\
             - job_name: fencepost\n  static_configs: [{{targets: ['{}']}}]\n",
            server.admin
        );
        fs::write(&file, text).expect("a file");
        let address = format!("127.0.0.1:{}", free_port());
        let mut command = bound_command("prometheus", None);
        command
            .arg(format!("--config.file={}", file.display()))
            .arg(format!("--storage.tsdb.path={}", directory.path().join("data").display()))
            .arg(format!("--web.listen-address={address}"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let process = spawn_bound_to_us(command).expect("prometheus starts");
        Self { process, client: Client::new(&address), _directory: directory }
    }

    /// The values of an expression now; none while there is no answer.
    pub async fn query(&self, expression: &str) -> Vec<String> {
        let query: String = form_urlencoded::byte_serialize(expression.as_bytes()).collect();
        let request = self.client.get(&format!("/api/v1/query?query={query}"));
        let Ok(response) = request.send().await else { return Vec::new() };
        let document: Value =
            serde_json::from_slice(&response.bytes().await.unwrap_or_default()).unwrap_or_default();
        let results = document["data"]["result"].as_array().cloned().unwrap_or_default();
        results.iter().filter_map(|result| Some(result["value"][1].as_str()?.to_owned())).collect()
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
