//! `fencepost serve`: the whole life of a server, from settings to exit code.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use backon::{BackoffBuilder, ExponentialBuilder};
use clap::Args;
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
};

use super::{check, exit::Failure, logging};
use crate::{
    admin::{self, About, Admin, Diagnosis, History, Latest},
    api::{self, Api, Guarded, Public},
    authority::{Authority, AuthorityError},
    engine::{self, Engine},
    limits::Limits,
    locks::Locks,
    metrics::Metrics,
    rejections::{Archivist, Rejections},
    server::{self, Drain},
    settings::{Exposure, LockService, Settings, StoreUrl},
    spans::{self, Spans},
    store::{DiskTrouble, OwningAuthority, Store, StoreError},
    threads::Threads,
};

/// What was held by a connection is released, even if nothing is left of the drain by then.
const TIME_TO_RELEASE: Duration = Duration::from_secs(1);

/// What was traced in the last moments is still sent to the collector, if it answers.
const TIME_TO_SEND: Duration = Duration::from_secs(1);

/// How long a lock service may take at the start to say whether it is the one that the store belongs to. If it
/// takes longer, the server starts all the same, and grants nothing before it knows.
const TIME_TO_CONFIRM: Duration = Duration::from_secs(1);

/// How often a server whose tokens come from elsewhere looks whether the store was moved.
const BETWEEN_LOOKS_AT_OWNER: Duration = Duration::from_secs(2);

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
        let listen = self.settings.listen;
        let exposure = self.settings.access.exposure(listen).map_err(Failure::settings)?;
        if exposure == Exposure::Accepted {
            tracing::warn!(
                %listen,
                "INSECURE, as asked for: whoever can reach this address can read, write and lock \
                 everything, or see what others do"
            );
        }
        let (url, store) = self.settings.store.open().map_err(Failure::settings)?;
        let (runtime, threads, others) = Threads::start(self.settings.threads())
            .map_err(|error| Failure::failed(format!("cannot start: {error}")))?;
        // An authority has tasks of its own, and they need a runtime to live in.
        let inside = runtime.enter();
        let lock_service = self.settings.open_authority(&store).map_err(Failure::settings)?;
        drop(inside);
        let served = runtime.block_on(serve(self.settings, &url, store, lock_service, threads));
        others.end();
        // Dropped, it would wait for a thread that may be looking up a name that nobody knows.
        runtime.shutdown_background();
        served
    }
}

async fn serve(
    settings: Settings,
    url: &StoreUrl,
    store: Arc<dyn Store>,
    LockService { authority, grantees, trust }: LockService,
    threads: Threads,
) -> Result<(), Failure> {
    let (about, wanted) = (about(&settings, url)?, wanted(&settings)?);
    // Signals are caught from here on, so that none is lost while starting.
    let mut stop = Stop::new()?;
    let public = bind("--listen", settings.listen)?;
    let private = bind("--admin-listen", settings.admin_listen)?;
    let (rejections, archivist) = start_recording(&settings, &store, authority.as_ref());
    let spans = open_spans(&settings, url, &rejections).map_err(Failure::settings)?;
    let metrics = Metrics::new(authority.is_some(), rejections.clone()).with_spans(spans.clone());
    let metrics = Arc::new(metrics);
    let access = settings.access.open(&metrics).map_err(Failure::settings)?;
    let engine = Arc::new(Engine::start(
        &store,
        trust,
        engine::Limits { queue: settings.queue as usize, mark_cache: settings.mark_cache.0 },
        metrics.clone(),
        &threads,
    ));
    let (drain_starter, drain) = Drain::new(settings.drain.0);
    let each_identity = access.gate.is_some().then(|| settings.limits.for_each_identity());
    let limits = Arc::new(Limits::new(settings.bounds(), each_identity, metrics.clone()));
    let for_connections = limits_of_connections(&settings, &limits, &metrics);
    let locks = authority.map(|authority| {
        Locks::new(authority, engine.clone(), limits.clone(), drain.closing().clone())
            .with_owners(grantees)
    });
    let api = Api::from(api::Shared {
        guarded: Guarded::new(engine.clone(), locks.clone()),
        gate: access.gate.clone(),
        limits: limits.clone(),
        on_loopback: settings.listen.ip().to_canonical().is_loopback(),
        rule: settings.rule,
        max_body: settings.max_body.0,
        body_timeout: settings.body_timeout.0,
        closing: drain.closing().clone(),
    });
    let history = Arc::new(History::default());
    tokio::spawn(history.clone().keep(metrics.clone()));
    tracing::info!(
        version = about.version,
        store = about.store,
        authority = about.authority,
        listen = %address_of(&public)?,
        admin = %address_of(&private)?,
        tls = access.tls.is_some(),
        authentication = access.gate.is_some(),
        "fencepost is starting"
    );
    let admin = Admin {
        engine: engine.clone(),
        locks: locks.clone(),
        limits,
        drain: drain.clone(),
        history,
        about: Arc::new(about),
        hosts: settings.admin_hosts.clone().unwrap_or_default().0.into(),
        latest: Latest::default(),
        gate: access.gate.clone().filter(|_| access.admin_tls.is_some()),
        insecure: settings.access.insecure,
        diagnosis: diagnosis(&settings, &store),
    };
    let admin = admin::router(admin, api.clone());
    let api = Public::new(api, metrics);
    let for_operators = for_connections.clone();
    let public = server::serve(public, access.tls, api, for_connections, drain.clone(), threads);
    let public = tokio::spawn(public);
    // Probes are answered to the very end, however busy the public side is.
    let (never, here) = (Drain::never(), Threads::only_this());
    let private = server::serve(private, access.admin_tls, admin, for_operators, never, here);
    let private = tokio::spawn(private);

    // Until the store is found fit, requests are answered with 503. So a database that is late
    // makes a fencepost unready, not dead; one that must not be used ends it.
    tokio::select! {
        prepared = prepare(&store, &settings, migrates(&settings, url), &wanted) => prepared?,
        () = stop.requested() => return Ok(()),
    }
    hold_to_owner(locks.as_ref(), store, &engine, wanted).await?;
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
        if let Some(spans) = spans {
            spans.finish(drain.remaining().min(TIME_TO_SEND)).await;
        }
    };
    tokio::select! {
        () = stopped => tracing::info!("stopped"),
        () = stop.requested() => tracing::warn!("stopped at once, as asked twice"),
    }
    private.abort();
    Ok(())
}

/// With the settings that the server was started with.
fn diagnosis(settings: &Settings, store: &Arc<dyn Store>) -> Diagnosis {
    let (settings, store) = (settings.clone(), store.clone());
    Diagnosis::new(move || check::diagnose(&settings, store.as_ref()))
}

/// The authority that the store must belong to.
fn wanted(settings: &Settings) -> Result<OwningAuthority, Failure> {
    settings.owning_authority().map_err(Failure::settings)
}

fn about(settings: &Settings, url: &StoreUrl) -> Result<About, Failure> {
    Ok(About {
        version: env!("CARGO_PKG_VERSION"),
        store: url.to_string(),
        authority: settings.authority_url().map_err(Failure::settings)?.to_string(),
        trust: settings.trust_level().map_err(Failure::settings)?.name(),
    })
}

fn limits_of_connections(
    settings: &Settings,
    limits: &Limits,
    metrics: &Metrics,
) -> server::Limits {
    server::Limits {
        connections: settings.max_connections as usize,
        turned_away: metrics.turned_away_connections(),
        by_identity: limits.concern_lines(),
        head: usize::try_from(settings.limits.max_head.0.as_u64()).unwrap_or(usize::MAX),
        header_timeout: settings.header_timeout.0,
        write_timeout: settings.write_timeout.0,
    }
}

/// The record of rejections, and who keeps it in the store once that is fit to use.
fn start_recording(
    settings: &Settings,
    store: &Arc<dyn Store>,
    authority: Option<&Arc<dyn Authority>>,
) -> (Arc<Rejections>, Option<Archivist>) {
    let mut rejections = Rejections::new(settings.rejections.rejections_memory.0);
    let keep = settings.rejections.keep();
    let archivist = keep.map(|keep| rejections.keep_in(store.clone(), keep));
    if let Some(authority) = authority {
        tokio::spawn(rejections.ask(authority.clone()).run());
    }
    let rejections = Arc::new(rejections);
    tokio::spawn(rejections.clone().keep());
    (rejections, archivist)
}

/// Where traces are collected, if anywhere.
fn open_spans(
    settings: &Settings,
    url: &StoreUrl,
    rejections: &Rejections,
) -> Result<Option<Arc<Spans>>, String> {
    let Some(endpoint) = settings.traces.endpoint()? else { return Ok(None) };
    let spans = Arc::new(Spans::open(spans::Options {
        endpoint: endpoint.as_str(),
        ratio: settings.traces.trace_ratio,
        database: match url {
            StoreUrl::Sqlite(_) => "sqlite",
            StoreUrl::Postgres(_) => "postgresql",
        },
        // As in the ids of its rejections.
        instance: format!("{:016x}", rejections.fencepost()),
    })?);
    tracing::info!(collector = %endpoint, "traces are sent");
    tokio::spawn(spans.clone().keep_sending());
    Ok(Some(spans))
}

fn bind(flag: &str, address: SocketAddr) -> Result<TcpListener, Failure> {
    server::listen(address)
        .map_err(|error| Failure::failed(format!("cannot listen on {flag} {address}: {error}")))
}

fn address_of(listener: &TcpListener) -> Result<SocketAddr, Failure> {
    listener.local_addr().map_err(|error| Failure::failed(error.to_string()))
}

fn migrates(settings: &Settings, url: &StoreUrl) -> bool {
    settings.migrate || matches!(url, StoreUrl::Sqlite(_))
}

/// Waits for the database, brings it up to date if that is wanted, and checks it. It must belong to the
/// authority that the settings name; the first server claims it.
async fn prepare(
    store: &Arc<dyn Store>,
    settings: &Settings,
    migrate: bool,
    wanted: &OwningAuthority,
) -> Result<(), StoreError> {
    let keeps_rejections = settings.rejections.keep().is_some();
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
            store.check().await?;
            store.check_rights(keeps_rejections).await?;
            store.claim_authority(wanted).await?.check(wanted)
        };
        match attempt.await {
            Err(
                error @ (StoreError::Unavailable(_)
                | StoreError::Busy
                | StoreError::Conflict
                | StoreError::Disk(DiskTrouble::Full, _)),
            ) => {
                tracing::warn!(%error, "waiting for the store");
            }
            settled => return settled,
        }
        tokio::time::sleep(delays.next().unwrap_or(Duration::from_secs(3))).await;
    }
}

/// Sees to it that nothing is served for another authority than the store belongs to, now and later on. A lock
/// service does the latter by itself.
async fn hold_to_owner(
    locks: Option<&Locks>,
    store: Arc<dyn Store>,
    engine: &Arc<Engine>,
    wanted: OwningAuthority,
) -> Result<(), Failure> {
    if let Some(locks) = locks {
        return confirm(locks.authority()).await;
    }
    tokio::spawn(watch_owner(store, engine.clone(), wanted));
    Ok(())
}

/// Ends the start if the lock service is another one than the store belongs to. One that does not answer is
/// no reason to stay away: fencing needs only the store.
async fn confirm(authority: &dyn Authority) -> Result<(), Failure> {
    match tokio::time::timeout(TIME_TO_CONFIRM, authority.confirm()).await {
        Ok(Err(AuthorityError::Foreign(reason))) => Err(Failure::failed(reason)),
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => {
            tracing::warn!(%error, "authority not confirmed yet");
            Ok(())
        }
        Err(_) => {
            tracing::warn!("authority not confirmed yet: it did not answer in time");
            Ok(())
        }
    }
}

/// Without a lock service nothing else notices that the store was moved to one. From then on its tokens are the
/// only ones that count, and a server that believes all others must not serve.
async fn watch_owner(store: Arc<dyn Store>, engine: Arc<Engine>, wanted: OwningAuthority) {
    loop {
        tokio::time::sleep(BETWEEN_LOOKS_AT_OWNER).await;
        let Ok(Some(recorded)) = store.owning_authority().await else { continue };
        let foreign = !recorded.may_be(&wanted);
        if foreign && !engine.is_foreign() {
            tracing::error!(%recorded, "requests are refused: the store belongs to another authority");
        }
        engine.set_foreign(foreign);
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
