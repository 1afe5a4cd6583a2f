//! `fencepost serve`: the whole life of a server, from settings to exit code.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use backon::{BackoffBuilder, ExponentialBuilder};
use clap::Args;
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
};

use super::{exit::Failure, logging};
use crate::{
    admin::{self, About, Admin, History, Latest},
    api::{self, Api},
    authority::Authority,
    engine::{self, Engine, Trust},
    locks::{self, Locks},
    metrics::Metrics,
    rejections::Rejections,
    server::{self, Drain},
    settings::{Settings, StoreUrl},
    store::{Store, StoreError},
};

/// What was held by a connection is released, even if nothing is left of the drain by then.
const TIME_TO_RELEASE: Duration = Duration::from_secs(1);

/// What was refused in the last moments is still written to the store, if it answers.
const TIME_TO_RECORD: Duration = Duration::from_secs(1);

#[derive(Args)]
pub struct Serve {
    #[command(flatten)]
    pub settings: Settings,
}

impl Serve {
    pub fn run(self) -> Result<(), Failure> {
        logging::start(self.settings.log_format, &self.settings.log)?;
        self.run_logged().map_err(Failure::logged)
    }

    fn run_logged(self) -> Result<(), Failure> {
        let (url, store) = self.settings.store.open().map_err(Failure::settings)?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .map_err(|error| Failure::failed(format!("cannot start: {error}")))?;
        // An authority has tasks of its own, and they need a runtime to live in.
        let inside = runtime.enter();
        let (authority, trust) = self.settings.open_authority(&store).map_err(Failure::settings)?;
        drop(inside);
        let served = runtime.block_on(serve(self.settings, &url, store, authority, trust));
        // Dropped, it would wait for a thread that may be looking up a name that nobody knows.
        runtime.shutdown_background();
        served
    }
}

async fn serve(
    settings: Settings,
    url: &StoreUrl,
    store: Arc<dyn Store>,
    authority: Option<Arc<dyn Authority>>,
    trust: Trust,
) -> Result<(), Failure> {
    let authority_url = settings.authority_url().map_err(Failure::settings)?;
    // Signals are caught from here on, so that none is lost while starting.
    let mut stop = Stop::new()?;
    let public = bind("--listen", settings.listen).await?;
    let private = bind("--admin-listen", settings.admin_listen).await?;
    let mut rejections = Rejections::new(settings.rejections.rejections_memory.0);
    let keep = settings.rejections.keep();
    let archivist = keep.map(|keep| rejections.keep_in(store.clone(), keep));
    let rejections = Arc::new(rejections);
    tokio::spawn(rejections.clone().keep());
    let engine = Arc::new(Engine::start(
        &store,
        trust,
        engine::Limits { queue: settings.queue as usize, mark_cache: settings.mark_cache.0 },
        Arc::new(Metrics::new(authority.is_some(), rejections.clone())),
    ));
    let (drain_starter, drain) = Drain::new(settings.drain.0);
    let limits = server::Limits {
        connections: settings.max_connections as usize,
        header_timeout: settings.header_timeout.0,
        write_timeout: settings.write_timeout.0,
    };
    let locks = authority.map(|authority| {
        let limits = locks::Limits {
            waiters: settings.max_waiters as usize,
            streams: settings.max_streams as usize,
        };
        Locks::new(authority, engine.clone(), limits, drain.closing().clone())
    });
    let api = Api {
        engine: engine.clone(),
        locks: locks.clone(),
        rule: settings.rule,
        max_body: settings.max_body.0,
        body_timeout: settings.body_timeout.0,
        closing: drain.closing().clone(),
    };
    let history = Arc::new(History::default());
    tokio::spawn(history.clone().keep(engine.metrics().clone()));
    let admin = Admin {
        engine: engine.clone(),
        locks: locks.clone(),
        drain: drain.clone(),
        history,
        about: Arc::new(About {
            version: env!("CARGO_PKG_VERSION"),
            store: url.to_string(),
            authority: authority_url.to_string(),
            trust: settings.trust_level().map_err(Failure::settings)?.name(),
        }),
        hosts: settings.admin_hosts.clone().unwrap_or_default().0.into(),
        latest: Latest::default(),
    };
    let admin = admin::router(admin, api.clone());
    let api = api::router(api);
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        store = %url,
        authority = %authority_url,
        listen = %address_of(&public)?,
        admin = %address_of(&private)?,
        "fencepost is starting"
    );
    let public = tokio::spawn(server::serve(public, api, limits, drain.clone()));
    // Probes are answered to the very end, however busy the public side is.
    let private = tokio::spawn(server::serve(private, admin, limits, Drain::never()));

    // Until the store is found fit, requests are answered with 503. So a database that is late
    // makes a fencepost unready, not dead; one that must not be used ends it.
    tokio::select! {
        prepared = prepare(store, migrates(&settings, url)) => prepared?,
        () = stop.requested() => return Ok(()),
    }
    engine.open();
    if let Some(archivist) = archivist {
        tokio::spawn(archivist.run());
    }
    tracing::info!("fencepost is ready");

    stop.requested().await;
    tracing::info!(drain = %settings.drain, "stopping: unready now, serving until it is quiet");
    drain_starter.begin();
    let stopped = async {
        let _ = public.await;
        if let Some(locks) = locks {
            let time = drain.remaining().max(TIME_TO_RELEASE);
            let _ = tokio::time::timeout(time, locks.finish()).await;
        }
        let time = drain.remaining().min(TIME_TO_RECORD);
        let _ = tokio::time::timeout(time, rejections.finish()).await;
    };
    tokio::select! {
        () = stopped => tracing::info!("stopped"),
        () = stop.requested() => tracing::warn!("stopped at once, as asked twice"),
    }
    private.abort();
    Ok(())
}

async fn bind(flag: &str, address: SocketAddr) -> Result<TcpListener, Failure> {
    TcpListener::bind(address)
        .await
        .map_err(|error| Failure::failed(format!("cannot listen on {flag} {address}: {error}")))
}

fn address_of(listener: &TcpListener) -> Result<SocketAddr, Failure> {
    listener.local_addr().map_err(|error| Failure::failed(error.to_string()))
}

fn migrates(settings: &Settings, url: &StoreUrl) -> bool {
    settings.migrate || matches!(url, StoreUrl::Sqlite(_))
}

/// Waits for the database, brings it up to date if that is wanted, and checks it.
async fn prepare(store: Arc<dyn Store>, migrate: bool) -> Result<(), StoreError> {
    let mut delays = ExponentialBuilder::default()
        .with_min_delay(Duration::from_millis(100))
        .with_max_delay(Duration::from_secs(3))
        .without_max_times()
        .with_jitter()
        .build();
    loop {
        let attempt = async {
            if migrate {
                store.migrate().await?;
            }
            store.check().await
        };
        match attempt.await {
            Err(error @ (StoreError::Unavailable(_) | StoreError::Busy | StoreError::Conflict)) => {
                tracing::warn!(%error, "waiting for the store");
            }
            settled => return settled,
        }
        tokio::time::sleep(delays.next().unwrap_or(Duration::from_secs(3))).await;
    }
}

/// SIGTERM from an orchestrator, SIGINT from a terminal.
struct Stop {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
}

impl Stop {
    fn new() -> Result<Self, Failure> {
        let listen = |kind| signal(kind).map_err(|error| Failure::failed(error.to_string()));
        Ok(Self {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
        })
    }

    async fn requested(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
