//! A worker of the demo: takes a lock, reads the stock, works, and writes what is left.
//!
//! It is as careful as a program can be without fencing: it reads and writes only while it believes
//! to hold the lock. It tells each step as a line of JSON. Before it writes, it waits for a line,
//! which stands for work that takes a while.

use std::path::PathBuf;

use clap::Args;
use reqwest::Method;
use serde_json::{Value, json};

use crate::{
    api,
    cli::{
        block_on,
        client::{
            Address,
            grants::{self, PATH, Terms},
            http,
        },
        exit::{Failure, Problem},
        output,
    },
};

/// The lock, and the key that it guards.
pub const STOCK: &str = "stock";

#[derive(Args)]
pub struct DemoWorker {
    #[arg(long)]
    name: String,

    /// How many pieces it sells
    #[arg(long)]
    sells: i64,

    /// Plain file that holds the stock; without one it is a resource of the server
    #[arg(long)]
    file: Option<PathBuf>,

    #[command(flatten)]
    address: Address,
}

impl DemoWorker {
    pub fn run(self) -> Result<(), Failure> {
        block_on(async {
            while !self.sell().await? {}
            Ok(())
        })?
    }

    /// One attempt; `false` if it was refused.
    async fn sell(&self) -> Result<bool, Failure> {
        let terms = Terms::new("1s", "8s", &self.name)?;
        tell(json!({ "event": "asks" }))?;
        let grant = terms.acquire(&self.address, STOCK).await?;
        let token = grant["token"].to_string();
        tell(json!({ "event": "granted", "token": grant["token"] }))?;
        let stock = self.read(&token).await?;
        let left = stock - self.sells;
        tell(json!({ "event": "read", "stock": stock, "will_write": left }))?;
        let mut line = String::new();
        std::io::stdin()
            .read_line(&mut line)
            .map_err(|error| Failure::failed(error.to_string()))?;
        match self.write(&token, left).await {
            Ok(()) => tell(json!({ "event": "wrote", "stock": left, "token": grant["token"] }))?,
            Err(Failure::Problem(problem)) => {
                tell(refusal(&problem))?;
                return Ok(false);
            }
            Err(failure) => return Err(failure),
        }
        let request = self.address.request(Method::DELETE, PATH, STOCK)?;
        match grants::release(request, &token).await {
            Ok(()) => tell(json!({ "event": "released" }))?,
            Err(Failure::Problem(problem)) => tell(refusal(&problem))?,
            Err(failure) => return Err(failure),
        }
        Ok(true)
    }

    async fn read(&self, token: &str) -> Result<i64, Failure> {
        let text = if let Some(path) = &self.file {
            std::fs::read_to_string(path).map_err(wrong_file)?
        } else {
            let request = self.address.request(Method::GET, "/v1/resources/", STOCK)?;
            let answer = http::send(request.header(api::FENCING_TOKEN, token)).await?;
            answer.text().await.map_err(http::unreachable)?
        };
        text.trim().parse().map_err(|_| Failure::failed("the stock is no number"))
    }

    async fn write(&self, token: &str, stock: i64) -> Result<(), Failure> {
        if let Some(path) = &self.file {
            return std::fs::write(path, stock.to_string()).map_err(wrong_file);
        }
        let request = self.address.request(Method::PUT, "/v1/resources/", STOCK)?;
        let request = request.header(api::FENCING_TOKEN, token).body(stock.to_string());
        http::send(request).await.map(drop)
    }
}

fn wrong_file(error: std::io::Error) -> Failure {
    Failure::failed(format!("the stock's file: {error}"))
}

fn refusal(problem: &Problem) -> Value {
    let document: Value = serde_json::from_str(&problem.document).unwrap_or_default();
    json!({ "event": problem.kind, "status": document["status"], "mark": document["mark"] })
}

fn tell(event: Value) -> Result<(), Failure> {
    output::print(&format!("{event}\n"))
}
