//! Nobody gets in where they do not belong: who asks, what they may touch, and whose a lock is.

mod bearer;
mod bypass;
mod commands;
mod exposure;
mod jwt;
mod operators;
mod ownership;
mod policy;
mod record;
mod reload;
mod streams;
mod tls;
