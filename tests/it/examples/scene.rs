//! Where a page's examples are run: a folder, servers, and names that lead to them.

use std::{
    fs,
    io::{BufRead, BufReader},
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Child, Command, Output, Stdio},
    sync::mpsc,
    thread,
};

use serde_json::Value;

use super::{
    extract::Example,
    kinds::{Kind, kind, without_schedule},
};
use crate::harness::{
    PATIENCE, bound_command, eventually,
    fencepost::BINARY,
    http::{Client, answer},
    spawn_bound_to_us, until_it_answers,
};

pub struct Scene {
    directory: tempfile::TempDir,
    /// What stands in an example, and what is meant by it here.
    names: Vec<(String, String)>,
    /// Run before the example that begins so.
    before: Vec<(String, String)>,
    /// Servers, and what goes on.
    children: Vec<Child>,
}

impl Drop for Scene {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Scene {
    pub fn new() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let scene = Self { directory, names: Vec::new(), before: Vec::new(), children: Vec::new() };
        fs::create_dir_all(scene.path().join("bin")).expect("a folder");
        std::os::unix::fs::symlink(BINARY, scene.path().join("bin/fencepost")).expect("a link");
        // curl's exit code tells of a status of 400 and above.
        scene.file(".curlrc", "fail-with-body\nno-progress-meter\n");
        scene.file(".state", "");
        let path = std::env::var("PATH").unwrap_or_default();
        scene.set("PATH", &format!("{}:{path}", scene.path().join("bin").display()));
        scene.set("CURL_HOME", scene.path().to_str().expect("UTF-8"));
        // Wherever a page leaves the addresses to the defaults, several pages run at once.
        scene.set("FENCEPOST_LISTEN", "127.0.0.1:0");
        scene.set("FENCEPOST_ADMIN_LISTEN", "127.0.0.1:0");
        scene.set("FENCEPOST_LOG_FORMAT", "json");
        scene
    }

    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    pub fn file(&self, name: &str, text: &str) {
        let path = self.path().join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, text).expect("a file");
    }

    pub fn program(&self, name: &str, text: &str) {
        self.file(name, &format!("#!/bin/sh\n{text}\n"));
        let executable = fs::Permissions::from_mode(0o755);
        fs::set_permissions(self.path().join(name), executable).expect("permissions");
    }

    /// From now on examples find this in their environment.
    pub fn set(&self, name: &str, value: &str) {
        let path = self.path().join(".state");
        let state = fs::read_to_string(&path).unwrap_or_default();
        let value = value.replace('\'', r"'\''");
        fs::write(path, format!("{state}\nexport {name}='{value}'\n")).expect("a file");
    }

    /// Wherever an example says `name`, this is meant.
    pub fn means(&mut self, name: &str, meant: &str) {
        self.names.push((name.into(), meant.into()));
    }

    pub fn before(&mut self, start: &str, script: &str) {
        self.before.push((start.into(), script.into()));
    }

    /// Replaces names, those that were set last first.
    fn meant(&self, text: &str) -> String {
        let names = self.names.iter().rev();
        names.fold(text.to_owned(), |text, (name, meant)| text.replace(name, meant))
    }

    fn bash(&self, script: &str) -> Command {
        let mut command = bound_command("bash", None);
        for (name, _) in std::env::vars() {
            if ["FENCEPOST_", "OTEL_", "PG", "ETCDCTL_"].iter().any(|ours| name.starts_with(ours)) {
                command.env_remove(name);
            }
        }
        command.args(["-c", script]).current_dir(self.path()).stdin(Stdio::null());
        command
    }

    /// To its end. What it sets in the environment is there for the next.
    pub async fn run(&self, text: &str) -> Output {
        let script =
            format!("set -a\n. ./.state\n{text}\nstatus=$?\nexport -p > ./.state\nexit $status");
        let mut command = self.bash(&script);
        tokio::task::spawn_blocking(move || command.output())
            .await
            .expect("a thread")
            .expect("bash runs")
    }

    /// Until it listens; then until it is ready. Client commands talk to it from then on.
    pub async fn serve(&mut self, text: &str) {
        let mut command = self.bash(&format!("set -a\n. ./.state\nexec {text}"));
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = spawn_bound_to_us(command).expect("bash runs");
        let stderr = child.stderr.take().expect("its log");
        self.children.push(child);
        let (told, listening) = mpsc::channel();
        let log = self.path().join("log");
        let log_of_thread = log.clone();
        thread::spawn(move || {
            let mut lines = String::new();
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                let entry: Value = serde_json::from_str(&line).unwrap_or_default();
                lines.push_str(&line);
                lines.push('\n');
                let _ = fs::write(&log_of_thread, &lines);
                if entry["message"] == "fencepost is starting" {
                    let _ = told.send(entry);
                }
            }
        });
        let entry = tokio::task::spawn_blocking(move || listening.recv_timeout(PATIENCE));
        let Ok(entry) = entry.await.expect("a thread") else {
            panic!("{text}\n{}", fs::read_to_string(log).unwrap_or_default());
        };
        let address = |name: &str| entry[name].as_str().expect("an address").to_owned();
        let (public, admin) = (address("listen"), address("admin"));
        let scheme = if text.contains("--tls-cert") { "https" } else { "http" };
        let port = public.rsplit(':').next().expect("a port").to_owned();
        let public = format!("127.0.0.1:{port}");
        self.set("FENCEPOST_URL", &format!("{scheme}://{public}"));
        for (name, meant) in [
            ("localhost:7420", &public),
            ("127.0.0.1:7420", &public),
            ("http://fencepost:7420", &format!("{scheme}://{public}")),
            ("fence.example:7420", &format!("localhost:{port}")),
            ("127.0.0.1:7421", &admin),
        ] {
            self.means(name, meant);
        }
        let client = Client::new(&admin);
        until_it_answers(text, &self.path().join("log"), || async {
            client.get("/readyz").send().await.is_ok_and(|answer| answer.status() == 200)
        })
        .await;
    }

    /// Until it has printed something. It goes on.
    async fn starts(&mut self, text: &str, number: usize) -> String {
        let output = self.path().join(format!("output-{number}"));
        let file = fs::File::create(&output).expect("a file");
        let mut command = self.bash(&format!("set -a\n. ./.state\nexec {text}"));
        command.stdout(file).stderr(Stdio::null());
        self.children.push(spawn_bound_to_us(command).expect("bash runs"));
        eventually(text, || async {
            let printed = fs::read_to_string(&output).unwrap_or_default();
            printed.contains("\n\n")
                || printed.lines().count() > 1
                || printed.starts_with('{') && printed.ends_with('\n')
        })
        .await;
        fs::read_to_string(&output).unwrap_or_default()
    }

    /// Does with an example what its kind asks for.
    pub async fn play(&mut self, example: &Example) {
        let Example { source, line, text: as_shown, shown } = example;
        let text = self.meant(without_schedule(as_shown));
        for (start, script) in &self.before {
            if as_shown.starts_with(start.as_str()) {
                let prepared = self.run(&self.meant(script)).await;
                assert!(prepared.status.success(), "{source}:{line}: {script}\n{prepared:?}");
            }
        }
        match kind(example).expect("a kind") {
            Kind::Runs(_) if shown.first().is_some_and(|first| first.starts_with("AT ")) => {
                // A table is what it prints on a terminal. Its values are of that day.
                let output = self.run(&format!("{text} -o table")).await;
                let printed = String::from_utf8_lossy(&output.stdout).into_owned();
                let head =
                    |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
                let printed = printed.lines().next().map(head).unwrap_or_default();
                assert_eq!(head(&shown[0]), printed, "{source}:{line}: {text}");
            }
            Kind::Runs(expected) => {
                let output = self.run(&text).await;
                let [printed, said] = [&output.stdout, &output.stderr]
                    .map(|bytes| String::from_utf8_lossy(bytes).into_owned());
                assert_eq!(
                    output.status.code(),
                    Some(expected),
                    "{source}:{line}: {as_shown}\n{text}\n{printed}{said}"
                );
                must_show(&format!("{source}:{line}: {text}"), shown, &printed);
            }
            Kind::Serves => self.serve(&text).await,
            Kind::GoesOn => {
                let printed = self.starts(&text, *line).await;
                // What it shows after that has yet to happen.
                let first = &shown[..shown.len().min(2)];
                let first = if printed.starts_with("event: ") { first } else { &[] };
                must_show(&format!("{source}:{line}: {text}"), first, &printed);
            }
            Kind::DryRun => {
                let output = Command::new("bash")
                    .args(["-c", &text.replacen("make ", "make -n ", 1)])
                    .current_dir(env!("CARGO_MANIFEST_DIR"))
                    .output()
                    .expect("bash runs");
                assert!(output.status.success(), "{source}:{line}: {text}\n{output:?}");
            }
            Kind::Expression | Kind::NotHere => {}
        }
    }

    /// Gives and takes back a lock, so that the next token is higher by as many.
    pub async fn issue(&self, tokens: usize) {
        let script =
            "T=$(fencepost lock orders/42 -o token) && fencepost unlock orders/42 --token $T";
        for _ in 0..tokens {
            let issued = self.run(script).await;
            assert!(issued.status.success(), "{issued:?}");
        }
    }

    pub async fn metrics(&self) -> String {
        let scrape = self.run(&self.meant("curl -s http://127.0.0.1:7421/metrics")).await;
        String::from_utf8(scrape.stdout).expect("UTF-8")
    }

    /// A value through the API, as a reader sees it.
    pub async fn read(&self, key: &str) -> String {
        let address = self.meant("127.0.0.1:7420");
        answer(Client::new(&address).read(key)).await.text()
    }
}

/// What a document shows as output is printed: but for the date, and for what differs each time.
fn must_show(what: &str, shown: &[String], printed: &str) {
    let printed: Vec<String> = printed.lines().map(timeless).collect();
    for line in shown.iter().filter(|line| !line.starts_with("date: ")) {
        let line = timeless(line);
        assert!(printed.contains(&line), "{what}\nshows {line}\nprints {printed:#?}");
    }
}

/// The line without what differs each time.
fn timeless(line: &str) -> String {
    let (before, json) = line.split_at(line.find('{').unwrap_or(line.len()));
    let Ok(mut value) = serde_json::from_str::<Value>(json) else {
        return line.trim_end().to_owned();
    };
    forget_times(&mut value);
    format!("{before}{value}")
}

fn forget_times(value: &mut Value) {
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                match name.as_str() {
                    "lease" | "ttl_ms" => *member = Value::Null,
                    _ => forget_times(member),
                }
            }
        }
        Value::Array(elements) => elements.iter_mut().for_each(forget_times),
        _ => {}
    }
}
