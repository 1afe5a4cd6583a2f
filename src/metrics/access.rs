//! Who was turned away, and whether what decides about it is up to date.

use prometheus_client::{
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};

use super::{
    counter,
    labels::{AccessFile, ByFile, ByTurnedAway, Each, TurnedAway},
};

pub struct AccessMetrics {
    pub turned_away: Each<TurnedAway, Counter>,
    pub failed_handshakes: Counter,
    pub reloads: Each<AccessFile, Counter>,
    pub file_refused: Each<AccessFile, Gauge>,
}

impl AccessMetrics {
    pub fn new(all: &mut Registry) -> Self {
        let turned_away = Family::<ByTurnedAway, Counter>::default();
        all.register(
            "requests_turned_away",
            "Requests without good credentials, or for what theirs do not allow",
            turned_away.clone(),
        );
        let failed_handshakes =
            counter(all, "tls_handshakes_failed", "Connections that did not get through TLS");
        let reloads = Family::<ByFile, Counter>::default();
        all.register(
            "reloads",
            "Times that a changed file was read anew and put in force",
            reloads.clone(),
        );
        let file_refused = Family::<ByFile, Gauge>::default();
        all.register(
            "file_refused",
            "1 while the newest version of a file is refused, and an older one is in force",
            file_refused.clone(),
        );
        Self {
            turned_away: Each::new(|reason| {
                turned_away.get_or_create_owned(&ByTurnedAway { reason })
            }),
            failed_handshakes,
            reloads: Each::new(|file| reloads.get_or_create_owned(&ByFile { file })),
            file_refused: Each::new(|file| file_refused.get_or_create_owned(&ByFile { file })),
        }
    }
}
