//! The way from a path and a method to a handler.
//!
//! axum's router would do, but on the way to a handler it makes several large allocations, for every
//! request: a tenth of what a write costs here. So the few routes are written out. Paths are compared
//! as they have come, byte by byte.

use axum::{
    body::{Body, HttpBody},
    extract::{Request, State},
    http::{Method, Uri},
    response::Response,
};

use super::{
    Api, batch, extract, listing, locks, marks, misnamed,
    named::{Name, Named},
    openapi,
    problem::{Kind, Problem},
    rejections, resources,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    Resources,
    Resource,
    Mark,
    Batch,
    Locks,
    Lock,
    Rejections,
    OpenApi,
}

impl Route {
    /// The OpenAPI document is held to this list.
    pub const ALL: [Self; 8] = [
        Self::Resources,
        Self::Resource,
        Self::Mark,
        Self::Batch,
        Self::Locks,
        Self::Lock,
        Self::Rejections,
        Self::OpenApi,
    ];

    /// An empty key leads to its handler, which refuses it.
    pub fn of(path: &str) -> Option<Self> {
        match path {
            path if path.starts_with("/v1/resources/") => Some(Self::Resource),
            path if path.starts_with("/v1/marks/") => Some(Self::Mark),
            path if path.starts_with("/v1/locks/") => Some(Self::Lock),
            "/v1/resources" => Some(Self::Resources),
            "/v1/batch" => Some(Self::Batch),
            "/v1/locks" => Some(Self::Locks),
            "/v1/rejections" => Some(Self::Rejections),
            "/openapi.json" => Some(Self::OpenApi),
            _ => None,
        }
    }

    /// As the OpenAPI document has it.
    pub fn template(self) -> &'static str {
        match self {
            Self::Resources => "/v1/resources",
            Self::Resource => "/v1/resources/{key}",
            Self::Mark => "/v1/marks/{key}",
            Self::Batch => "/v1/batch",
            Self::Locks => "/v1/locks",
            Self::Lock => "/v1/locks/{name}",
            Self::Rejections => "/v1/rejections",
            Self::OpenApi => "/openapi.json",
        }
    }

    fn takes(self, method: &Method) -> bool {
        self.allows().split(',').any(|allowed| allowed == method.as_str())
    }

    fn allows(self) -> &'static str {
        match self {
            Self::Resource => "GET,HEAD,PUT,DELETE",
            Self::Mark => "GET,HEAD,PUT",
            Self::Lock => "GET,HEAD,POST,PUT,DELETE",
            Self::Batch => "POST",
            Self::Resources | Self::Locks | Self::Rejections | Self::OpenApi => "GET,HEAD",
        }
    }
}

pub async fn answer(
    api: &Api,
    route: Option<Route>,
    request: Request,
    named: Named,
) -> Result<Response, Problem> {
    let Some(route) = route else { return Err(no_such_route(request.uri().clone()).await) };
    let method = request.method().clone();
    let state = State(api.clone());
    // Before any header is judged: what is not possible at all is not wrong in its details.
    if !route.takes(&method) {
        let problem = no_such_method(method, request.uri().clone()).await;
        return Err(problem.allowing(route.allows()));
    }
    if let Some(problem) = misnamed::refuse(request.headers(), named, &method, route) {
        return Err(Box::pin(after_the_body(api, route, request, problem)).await);
    }
    let mut request = request;
    // Without a token it is refused anyway, for want of one.
    let has_token = named.has(Name::Token);
    if has_token && takes_no_body(route, &method) && !request.body().is_end_stream() {
        request = Box::pin(without_a_body(api, route, request)).await?;
    } else if method.is_safe() {
        // Its body is never read. It goes now, and not with the answer: until then it would take up memory
        // that is not counted.
        drop(std::mem::take(request.body_mut()));
    }
    match (route, &method) {
        (Route::Resource, &Method::GET | &Method::HEAD) => {
            resources::get(state, request, named).await
        }
        (Route::Resource, &Method::PUT) => resources::put(state, request, named).await,
        (Route::Resource, &Method::DELETE) => resources::delete(state, request, named).await,
        // What is asked for less often is not given room in every connection.
        _ => Box::pin(less_often(state, route, &method, request)).await,
    }
}

/// A claim, a fenced read, a delete, a renewal and a release are told by their headers.
fn takes_no_body(route: Route, method: &Method) -> bool {
    match route {
        Route::Mark => *method == Method::PUT,
        Route::Resource => *method == Method::DELETE || method.is_safe(),
        Route::Lock => *method == Method::PUT || *method == Method::DELETE,
        _ => false,
    }
}

/// A client that sends one may think that it is read: `{"scope": "orders"}` would protect nothing.
async fn without_a_body(api: &Api, route: Route, request: Request) -> Result<Request, Problem> {
    let (parts, body) = request.into_parts();
    let body = api.receive(&parts, body).await?.bytes;
    // Some HTTP clients cannot send nothing.
    if matches!(body.trim_ascii(), b"" | b"{}" | b"null") {
        return Ok(Request::from_parts(parts, Body::empty()));
    }
    let detail = "this request takes no body, and this one has one; what it is about is said in the \
                  path and in the X-Fencing headers";
    let problem = Problem::new(Kind::InvalidRequest, detail);
    Err(after_the_body(api, route, Request::from_parts(parts, Body::empty()), problem).await)
}

/// An answer that arrives while the client is still sending may be lost, so the body is read first.
async fn after_the_body(api: &Api, route: Route, request: Request, problem: Problem) -> Problem {
    let (parts, body) = request.into_parts();
    let problem = match api.receive(&parts, body).await {
        Err(failed) if failed.closes() => problem.and_close(),
        _ => problem,
    };
    let prefix = match route {
        Route::Resource => resources::PREFIX,
        Route::Mark => marks::PREFIX,
        _ => return problem,
    };
    match extract::key(&parts.uri, prefix) {
        Ok(key) => problem.about(key),
        Err(_) => problem,
    }
}

async fn less_often(
    api: State<Api>,
    route: Route,
    method: &Method,
    request: Request,
) -> Result<Response, Problem> {
    // A HEAD is a GET whose body is left out.
    let method = if method == Method::HEAD { &Method::GET } else { method };
    match (route, method) {
        (Route::Resources, &Method::GET) => listing::list(api, request).await,
        (Route::Mark, &Method::GET) => marks::get(api, request).await,
        (Route::Mark, &Method::PUT) => marks::put(api, request).await,
        (Route::Batch, &Method::POST) => batch::post(api, request).await,
        (Route::Locks, &Method::GET) => locks::list::get(api, request).await,
        (Route::Lock, &Method::GET) => locks::inspect::get(api, request).await,
        (Route::Lock, &Method::POST) => locks::acquire::post(api, request).await,
        (Route::Lock, &Method::PUT) => locks::holder::renew(api, request).await,
        (Route::Lock, &Method::DELETE) => locks::holder::release(api, request).await,
        (Route::Rejections, &Method::GET) => rejections::get(api, request).await,
        (Route::OpenApi, &Method::GET) => Ok(openapi::get()),
        _ => {
            let problem = no_such_method(request.method().clone(), request.uri().clone()).await;
            Err(problem.allowing(route.allows()))
        }
    }
}

pub(crate) async fn no_such_route(uri: Uri) -> Problem {
    Problem::new(Kind::NotFound, format!("there is nothing at {}", uri.path()))
}

pub(crate) async fn no_such_method(method: Method, uri: Uri) -> Problem {
    let detail = format!("{method} is not possible at {}; Allow says what is", uri.path());
    Problem::new(Kind::MethodNotAllowed, detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_template_leads_to_its_route() {
        for route in Route::ALL {
            assert_eq!(Route::of(route.template()), Some(route));
        }
    }

    #[test]
    fn only_what_was_meant_is_a_route() {
        for path in ["", "*", "/", "/v1", "/v1/", "/v1/batch/", "/v1//batch", "/V1/batch"] {
            assert_eq!(Route::of(path), None, "{path}");
        }
        for path in ["/v1/resources/", "/v1/resources//", "/v1/resources/../batch"] {
            assert_eq!(Route::of(path), Some(Route::Resource), "{path}");
        }
    }
}
