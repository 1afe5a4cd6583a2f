//! Requests to a server, and what to make of its answers.

use std::{error::Error, time::Duration};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::{RequestBuilder, Response, Url, header::HeaderName};
use serde_json::Value;

use super::{Address, Credentials, Fencing, Precondition, Server};
use crate::{
    api,
    cli::{
        exit::{Failure, Problem},
        usage::masked,
    },
    write::Rule,
};

/// Everything that could mean something in a URL is escaped. A slash is, too, though the server
/// would not mind: `a/../b` must reach it as one segment, or an HTTP client resolves it before
/// sending.
const IN_A_PATH: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.');

pub const PATIENCE: Duration = Duration::from_mins(1);

pub fn client(patience: Duration) -> reqwest::ClientBuilder {
    // Fails if it is already there, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder().timeout(patience).redirect(reqwest::redirect::Policy::none())
}

pub fn built(client: reqwest::ClientBuilder) -> Result<reqwest::Client, Failure> {
    client.build().map_err(|error| Failure::failed(format!("cannot make an HTTP client: {error}")))
}

pub fn server_url(text: &str) -> Result<Url, String> {
    let plain = |url: &Url| {
        matches!(url.scheme(), "http" | "https") && url.query().or(url.fragment()).is_none()
    };
    let url = Url::parse(text).ok().filter(plain);
    url.ok_or_else(|| "write it as http://127.0.0.1:7420".into())
}

/// A key as it is written in a path or a header.
pub fn encoded(key: &str) -> String {
    utf8_percent_encode(key, IN_A_PATH).to_string()
}

pub fn add(request: RequestBuilder, name: HeaderName, value: Option<String>) -> RequestBuilder {
    match value {
        Some(value) => request.header(name, value),
        None => request,
    }
}

impl Server {
    pub fn request(
        &self,
        method: reqwest::Method,
        path: &str,
        key: &str,
    ) -> Result<RequestBuilder, Failure> {
        self.address.request(method, path, key)
    }
}

impl Address {
    pub fn of(url: &str) -> Result<Self, Failure> {
        let credentials = Credentials::default();
        server_url(url).map(|url| Self { url, credentials }).map_err(Failure::Settings)
    }

    /// `path` is `/v1/resources/` or the like.
    pub fn request(
        &self,
        method: reqwest::Method,
        path: &str,
        key: &str,
    ) -> Result<RequestBuilder, Failure> {
        if matches!(key, "." | "..") {
            return Err(Failure::settings(format!(
                "the key {key:?} cannot be sent from here, since HTTP clients resolve it as a \
                 path; try `curl --path-as-is {}{path}{key}`",
                masked(self.url.as_str().trim_end_matches('/')),
            )));
        }
        let url = format!("{}{path}{}", self.url.as_str().trim_end_matches('/'), encoded(key));
        let client = built(self.credentials.add_to(client(PATIENCE))?)?;
        self.credentials.sign(client.request(method, url))
    }
}

impl Fencing {
    /// As they are: the server is the one to judge what is valid.
    pub fn add_to(self, request: RequestBuilder) -> Result<RequestBuilder, Failure> {
        let rule = self.rule.map(|rule| match rule {
            Rule::AtLeast => "at-least".to_owned(),
            Rule::Above => "above".to_owned(),
        });
        let scope = self.scope.under(Some(&self.token))?;
        let headers = [
            (api::FENCING_TOKEN, Some(self.token)),
            (api::FENCING_SEQ, self.seq),
            (api::FENCING_SCOPE, scope.as_deref().map(encoded)),
            (api::FENCING_RULE, rule),
            (api::FENCING_CLIENT, self.client),
        ];
        Ok(headers.into_iter().fold(request, |request, (name, value)| add(request, name, value)))
    }
}

impl Precondition {
    pub fn add_to(&self, request: RequestBuilder) -> RequestBuilder {
        match (self.if_version, self.if_absent) {
            (Some(version), _) => request.header("if-match", format!("\"{version}\"")),
            (None, true) => request.header("if-none-match", "*"),
            (None, false) => request,
        }
    }
}

/// The answer, if it is a success.
pub async fn send(request: RequestBuilder) -> Result<Response, Failure> {
    let response = request.send().await.map_err(unreachable)?;
    if response.status().is_success() {
        return Ok(response);
    }
    let status = response.status();
    let text = response.text().await.map_err(unreachable)?;
    let document: Value = serde_json::from_str(&text).unwrap_or_default();
    let member = |name: &str| document[name].as_str().map(str::to_owned);
    let kind =
        member("type").and_then(|kind| kind.strip_prefix("urn:fencepost:").map(str::to_owned));
    let Some(kind) = kind else { return Err(not_a_fencepost(&status.to_string())) };
    Err(Failure::Problem(Problem {
        kind,
        title: member("title").unwrap_or_default(),
        detail: member("detail").unwrap_or_default(),
        document: text,
    }))
}

pub async fn json(response: Response) -> Result<Value, Failure> {
    let text = response.text().await.map_err(unreachable)?;
    serde_json::from_str(&text).map_err(|_| not_a_fencepost("something other than JSON"))
}

pub fn not_a_fencepost(answer: &str) -> Failure {
    Failure::failed(format!(
        "the server answered with {answer}, and not as a fencepost would; is --url right?"
    ))
}

pub fn unreachable(error: reqwest::Error) -> Failure {
    // The address was looked at before, so it is a header.
    if error.is_builder() {
        return Failure::settings("a flag holds a character that an HTTP header cannot carry");
    }
    let server =
        error.url().map(|url| masked(&url[..url::Position::BeforePath])).unwrap_or_default();
    let cause = root_cause(&error);
    let message = if error.is_timeout() {
        format!("{server} did not answer in time")
    } else {
        format!("{server} does not answer ({cause}); is `fencepost serve` running there?")
    };
    Failure::Unavailable(message)
}

/// The message that says what happened, without the layers around it.
fn root_cause(error: &reqwest::Error) -> String {
    let mut cause: &dyn Error = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}
