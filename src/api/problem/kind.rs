//! What kinds of problems there are: their names, statuses and titles.

use axum::http::StatusCode;

use crate::fence::Refusal;

/// The problem's type, by which programs tell what happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// 400
    InvalidToken,
    /// 400
    InvalidSeq,
    /// 400
    InvalidKey,
    /// 400
    InvalidRequest,
    /// 401
    Unauthenticated,
    /// 403
    Forbidden,
    /// 404
    NotFound,
    /// 405
    MethodNotAllowed,
    /// 406
    NotAcceptable,
    /// 408
    RequestTimeout,
    /// 409
    StaleToken,
    /// 409
    OutOfOrder,
    /// 409
    LockLost,
    /// 412
    VersionMismatch,
    /// 413
    TooLarge,
    /// 415
    UnsupportedMediaType,
    /// 422
    SeqReused,
    /// 422
    UnissuedToken,
    /// 423
    LockHeld,
    /// 428
    TokenRequired,
    /// 429
    OverLimit,
    /// 503
    Overloaded,
    /// 503
    StoreUnavailable,
    /// 503
    StoreFull,
    /// 503
    AuthorityUnavailable,
    /// 503
    AuthorityMismatch,
    /// 503
    ShuttingDown,
    /// 504
    OutcomeUnknown,
}

impl Kind {
    pub fn of(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Stale => Self::StaleToken,
            Refusal::OutOfOrder => Self::OutOfOrder,
            Refusal::SeqReused => Self::SeqReused,
            Refusal::VersionMismatch => Self::VersionMismatch,
            Refusal::Unissued => Self::UnissuedToken,
        }
    }

    pub const ALL: [Self; 28] = [
        Self::InvalidToken,
        Self::InvalidSeq,
        Self::InvalidKey,
        Self::InvalidRequest,
        Self::Unauthenticated,
        Self::Forbidden,
        Self::NotFound,
        Self::MethodNotAllowed,
        Self::NotAcceptable,
        Self::RequestTimeout,
        Self::StaleToken,
        Self::OutOfOrder,
        Self::LockLost,
        Self::VersionMismatch,
        Self::TooLarge,
        Self::UnsupportedMediaType,
        Self::SeqReused,
        Self::UnissuedToken,
        Self::LockHeld,
        Self::TokenRequired,
        Self::OverLimit,
        Self::Overloaded,
        Self::StoreUnavailable,
        Self::StoreFull,
        Self::AuthorityUnavailable,
        Self::AuthorityMismatch,
        Self::ShuttingDown,
        Self::OutcomeUnknown,
    ];

    /// Its type in a word, for logs and metrics.
    pub fn name(self) -> &'static str {
        const SPACE: &str = "urn:fencepost:";
        &self.urn()[SPACE.len()..]
    }

    pub fn status(self) -> StatusCode {
        match self {
            Self::InvalidToken | Self::InvalidSeq | Self::InvalidKey | Self::InvalidRequest => {
                StatusCode::BAD_REQUEST
            }
            Self::Unauthenticated => StatusCode::UNAUTHORIZED,
            Self::Forbidden => StatusCode::FORBIDDEN,
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::NotAcceptable => StatusCode::NOT_ACCEPTABLE,
            Self::RequestTimeout => StatusCode::REQUEST_TIMEOUT,
            Self::StaleToken | Self::OutOfOrder | Self::LockLost => StatusCode::CONFLICT,
            Self::VersionMismatch => StatusCode::PRECONDITION_FAILED,
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::UnsupportedMediaType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::SeqReused | Self::UnissuedToken => StatusCode::UNPROCESSABLE_ENTITY,
            Self::LockHeld => StatusCode::LOCKED,
            Self::TokenRequired => StatusCode::PRECONDITION_REQUIRED,
            Self::OverLimit => StatusCode::TOO_MANY_REQUESTS,
            Self::Overloaded
            | Self::StoreUnavailable
            | Self::StoreFull
            | Self::AuthorityUnavailable
            | Self::AuthorityMismatch
            | Self::ShuttingDown => StatusCode::SERVICE_UNAVAILABLE,
            Self::OutcomeUnknown => StatusCode::GATEWAY_TIMEOUT,
        }
    }

    /// The problem's `type`.
    pub fn urn(self) -> &'static str {
        match self {
            Self::InvalidToken => "urn:fencepost:invalid-token",
            Self::InvalidSeq => "urn:fencepost:invalid-seq",
            Self::InvalidKey => "urn:fencepost:invalid-key",
            Self::InvalidRequest => "urn:fencepost:invalid-request",
            Self::Unauthenticated => "urn:fencepost:unauthenticated",
            Self::Forbidden => "urn:fencepost:forbidden",
            Self::NotFound => "urn:fencepost:not-found",
            Self::MethodNotAllowed => "urn:fencepost:method-not-allowed",
            Self::NotAcceptable => "urn:fencepost:not-acceptable",
            Self::RequestTimeout => "urn:fencepost:request-timeout",
            Self::StaleToken => "urn:fencepost:stale-token",
            Self::OutOfOrder => "urn:fencepost:out-of-order",
            Self::LockLost => "urn:fencepost:lock-lost",
            Self::VersionMismatch => "urn:fencepost:version-mismatch",
            Self::TooLarge => "urn:fencepost:too-large",
            Self::UnsupportedMediaType => "urn:fencepost:unsupported-media-type",
            Self::SeqReused => "urn:fencepost:seq-reused",
            Self::UnissuedToken => "urn:fencepost:unissued-token",
            Self::LockHeld => "urn:fencepost:lock-held",
            Self::TokenRequired => "urn:fencepost:token-required",
            // The status says whether it is this client that asks for much, or all of them.
            Self::OverLimit | Self::Overloaded => "urn:fencepost:overloaded",
            Self::StoreUnavailable => "urn:fencepost:store-unavailable",
            Self::StoreFull => "urn:fencepost:store-full",
            Self::AuthorityUnavailable => "urn:fencepost:authority-unavailable",
            Self::AuthorityMismatch => "urn:fencepost:authority-mismatch",
            Self::ShuttingDown => "urn:fencepost:shutting-down",
            Self::OutcomeUnknown => "urn:fencepost:outcome-unknown",
        }
    }

    pub fn title(self) -> &'static str {
        match self {
            Self::InvalidToken => "The fencing token is not valid",
            Self::InvalidSeq => "The sequence number is not valid",
            Self::InvalidKey => "The key is not valid",
            Self::InvalidRequest => "The request is not valid",
            Self::Unauthenticated => "Who asks has not been proved",
            Self::Forbidden => "This is not allowed",
            Self::NotFound => "Not found",
            Self::MethodNotAllowed => "The method is not allowed here",
            Self::NotAcceptable => "There is no such representation",
            Self::RequestTimeout => "The request took too long to arrive",
            Self::StaleToken => "A newer holder has been seen",
            Self::OutOfOrder => "A later write of the same holder came first",
            Self::LockLost => "The lock is no longer held under this token",
            Self::VersionMismatch => "The resource is not at the expected version",
            Self::TooLarge => "The request is too large",
            Self::UnsupportedMediaType => "The media type is not supported",
            Self::SeqReused => "The sequence number was used for another write",
            Self::UnissuedToken => "The token has not been issued",
            Self::LockHeld => "Somebody else holds the lock",
            Self::TokenRequired => "A fencing token is required",
            Self::OverLimit => "A limit is reached",
            Self::Overloaded => "Too many requests are waiting",
            Self::StoreUnavailable => "The store cannot be used at the moment",
            Self::StoreFull => "The store's disk is full",
            Self::AuthorityUnavailable => "The lock service cannot be used at the moment",
            Self::AuthorityMismatch => "The store belongs to another authority",
            Self::ShuttingDown => "The server is shutting down",
            Self::OutcomeUnknown => "Whether the write took effect is unknown",
        }
    }

    /// Whether the same request may succeed later.
    pub fn retryable(self) -> bool {
        matches!(
            self,
            Self::RequestTimeout
                | Self::OverLimit
                | Self::Overloaded
                | Self::StoreUnavailable
                | Self::StoreFull
                | Self::AuthorityUnavailable
                | Self::AuthorityMismatch
                | Self::LockHeld
                | Self::ShuttingDown
                | Self::OutcomeUnknown
        )
    }
}
