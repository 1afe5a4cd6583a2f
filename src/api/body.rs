//! Reading a request's body: bounded in size and in time.

use axum::{
    body::{Body, Bytes, HttpBody},
    http::{HeaderMap, header, request::Parts},
};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use std::{future::poll_fn, pin::pin, task::Poll, time::Duration};
use tokio::time::{error::Elapsed, timeout};

use super::{
    Api, misnamed,
    problem::{Kind, Problem},
    weighed::{Incoming, Received},
};
use crate::{buffer::Growing, limits::OverLimit};

/// A client that is still sending may not see an answer before it is done. So what is too much is
/// thrown away for a while before the connection is closed on it.
const THROW_AWAY_BYTES: usize = 16 << 20;
const THROW_AWAY_TIME: Duration = Duration::from_secs(5);

/// The least that hyper reads into.
const READ_BUFFER: usize = 8 << 10;

impl Api {
    pub async fn receive(&self, parts: &Parts, mut body: Body) -> Result<Received, Problem> {
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
            Ok(Ok(bytes)) => Ok(Received { bytes, load: incoming.load }),
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
    let announced = body.size_hint().exact().and_then(|length| usize::try_from(length).ok());
    let Some(first) = body.frame().await.transpose()? else { return Ok(Bytes::new()) };
    // Trailers, and nothing after them.
    let Ok(first) = first.into_data() else { return Ok(Bytes::new()) };
    if body.is_end_stream() {
        return Ok(out_of_the_buffer(first));
    }
    let mut all = Growing::new(announced);
    all.push(&first);
    drop(first);
    while let Some(frame) = body.frame().await.transpose()? {
        if let Ok(data) = frame.into_data() {
            all.push(&data);
        }
    }
    Ok(all.finish())
}

/// What is smaller than the buffer that it was read into must not keep all of that in memory.
fn out_of_the_buffer(data: Bytes) -> Bytes {
    if data.len() > READ_BUFFER { data } else { Bytes::copy_from_slice(&data) }
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
