//! Reading a request's body: bounded in size and in time.

use axum::{
    body::{Body, Bytes, HttpBody},
    http::{HeaderMap, header, request::Parts},
};
use bytes::BytesMut;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use std::{future::poll_fn, pin::pin, task::Poll, time::Duration};
use tokio::time::{error::Elapsed, timeout};

use super::{
    Api, misnamed,
    problem::{Kind, Problem},
    weighed::Incoming,
};
use crate::limits::OverLimit;

/// A client that is still sending may not see an answer before it is done. So what is too much is
/// thrown away for a while before the connection is closed on it.
const THROW_AWAY_BYTES: usize = 16 << 20;
const THROW_AWAY_TIME: Duration = Duration::from_secs(1);

impl Api {
    pub async fn receive(&self, parts: &Parts, mut body: Body) -> Result<Bytes, Problem> {
        let headers = &parts.headers;
        let limit = usize::try_from(self.max_body.as_u64()).unwrap_or(usize::MAX);
        if declared_length(headers).is_some_and(|length| length > self.max_body.as_u64()) {
            // Whoever asked first has not sent anything yet, and now need not.
            if !headers.contains_key(header::EXPECT) {
                throw_away(body).await;
            }
            return Err(self.too_large());
        }
        let who = parts.extensions.get();
        let mut incoming =
            Incoming { body: &mut body, limits: &self.limits, who, received: 0, load: None };
        let receive = whole(Limited::new(&mut incoming, limit));
        match in_time(self.body_timeout, receive).await {
            Ok(Ok(bytes)) => Ok(match incoming.load {
                Some(load) => load.of(bytes),
                None => bytes,
            }),
            Ok(Err(error)) => {
                // What has come is no longer there.
                drop(incoming.load);
                let problem = match error.downcast::<OverLimit>() {
                    Ok(over) => Problem::from(*over).and_close(),
                    Err(error) if error.is::<LengthLimitError>() => self.too_large(),
                    Err(error) if error.is::<misnamed::InTrailers>() => {
                        return Err(Problem::new(Kind::InvalidRequest, error.to_string()));
                    }
                    Err(_) => {
                        let detail = "the body could not be read to its end";
                        return Err(Problem::new(Kind::InvalidRequest, detail));
                    }
                };
                throw_away(body).await;
                Err(problem)
            }
            Err(_) => {
                let limit = humantime::format_duration(self.body_timeout);
                let detail = format!("the body did not arrive within {limit}");
                Err(Problem::new(Kind::RequestTimeout, detail).and_close())
            }
        }
    }

    fn too_large(&self) -> Problem {
        Problem::new(
            Kind::TooLarge,
            format!("the body is larger than {}, which --max-body sets", self.max_body),
        )
    }
}

/// Most bodies arrive in one piece, which is then all that there is to do.
async fn whole<B: HttpBody<Data = Bytes> + Unpin>(mut body: B) -> Result<Bytes, B::Error> {
    let Some(first) = body.frame().await.transpose()? else { return Ok(Bytes::new()) };
    match first.into_data() {
        Ok(data) if body.is_end_stream() => Ok(data),
        Ok(data) => {
            let mut all = BytesMut::from(data);
            while let Some(frame) = body.frame().await.transpose()? {
                all.extend(frame.into_data());
            }
            Ok(all.freeze())
        }
        // Trailers, and nothing after them.
        Err(_) => Ok(Bytes::new()),
    }
}

/// Most bodies arrive together with their head. They are there at the second look, which comes at
/// once, and need no timer.
async fn in_time<T>(limit: Duration, receive: impl Future<Output = T>) -> Result<T, Elapsed> {
    let mut receive = pin!(receive);
    let mut looked = false;
    let at_once = poll_fn(|context| match receive.as_mut().poll(context) {
        Poll::Ready(received) => Poll::Ready(Some(received)),
        Poll::Pending if looked => Poll::Ready(None),
        Poll::Pending => {
            looked = true;
            context.waker().wake_by_ref();
            Poll::Pending
        }
    });
    match at_once.await {
        Some(received) => Ok(received),
        None => timeout(limit, receive).await,
    }
}

fn declared_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

async fn throw_away(body: Body) {
    let mut body = Limited::new(body, THROW_AWAY_BYTES);
    let discard = async { while let Some(Ok(_)) = body.frame().await {} };
    let _ = timeout(THROW_AWAY_TIME, discard).await;
}
