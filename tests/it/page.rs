//! The page: who may have it, what it shows, and what it does to somebody who looks at it.

mod portrait;
mod seen;
mod served;
