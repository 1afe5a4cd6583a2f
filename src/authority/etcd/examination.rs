//! A look at an etcd for `fencepost check`: what it shows, beside what the store remembers of it.
//! Nothing is changed by it: an epoch that has to move on is moved by whoever serves.

use std::time::{Duration, SystemTime};

use etcd_client::{Client, Error, StatusResponse};
use tokio::time::timeout;

use super::{
    EtcdOptions, claimed_by,
    epoch::sighting,
    identity::DEFAULT_CLUSTER,
    instance::Instance,
    layout::Layout,
    members::Members,
    trouble::Trouble,
    version::{Support, support, tested},
};
use crate::{
    authority::{AuthorityError, ownership},
    finding::{Finding, Subject},
    store::{KnownEtcd, OwningAuthority, Sighting, Store},
};

/// How long one member may take to answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// An epoch that has moved since then is news.
const LATELY: Duration = Duration::from_hours(7 * 24);

/// Everything that an operator should know about it, found without changing anything.
pub async fn examine(options: EtcdOptions, store: &dyn Store) -> Vec<Finding> {
    let mut answering = Vec::new();
    let mut silent = Vec::new();
    let members = Members::new(&options.members, options.tls, options.user);
    for (address, client) in options.members.iter().zip(members.each().await) {
        match status(client).await {
            Ok(answer) => answering.push(answer),
            Err(reason) => silent.push(format!("{address}: {reason}")),
        }
    }
    let wanted = claimed_by(&options.prefix);
    let Some((mut client, _)) = answering.first().cloned() else {
        let mut findings = owner(store, &wanted).await;
        findings.push(Finding::away(
            Subject::Authority,
            format!("no member of etcd answers ({})", silent.join("; ")),
            "see that etcd runs, and that --authority names its client addresses; writes under \
             tokens that are known go on meanwhile",
        ));
        return findings;
    };
    let mut findings = vec![
        all_answer(answering.len(), &silent),
        version(answering.iter().map(|(_, status)| status.version())),
    ];
    // In this order: what is remembered must not be newer than what is shown.
    let remembered = store.tokens().await;
    match shown(&mut client, &Layout::new(&options.prefix)).await {
        Err(reason) => findings.push(Finding::away(
            Subject::Authority,
            format!("etcd has no quorum, or refuses us: {reason}"),
            "see `etcdctl endpoint status --cluster`, and the rights of the user",
        )),
        Ok((seen, instance)) => {
            findings.push(Finding::good(Subject::Authority, "etcd answers, with a quorum"));
            let identity = Some(seen.cluster.clone());
            findings.extend(owner(store, &OwningAuthority { identity, instance, ..wanted }).await);
            findings.extend(default_cluster(&seen.cluster));
            match remembered {
                Ok(tokens) => findings.extend(memory(&seen, tokens.etcd.as_ref())),
                Err(error) => findings.push(Finding::doubtful(
                    Subject::Memory,
                    format!("what is remembered of it could not be read: {error}"),
                    "mend the store first",
                )),
            }
        }
    }
    findings
}

/// Nothing where the store cannot be asked: it has findings of its own.
async fn owner(store: &dyn Store, wanted: &OwningAuthority) -> Vec<Finding> {
    let recorded = store.owning_authority().await;
    recorded.map(|recorded| ownership::finding(recorded.as_ref(), wanted)).into_iter().collect()
}

/// A new one of these looks like the store's own that was emptied, and takes its place.
fn default_cluster(cluster: &str) -> Option<Finding> {
    (cluster == DEFAULT_CLUSTER).then(|| {
        Finding::doubtful(
            Subject::Owner,
            format!("{cluster} is the cluster id of every etcd with default settings"),
            "a new etcd at its address would be taken for this one, emptied: give each cluster its own \
             --initial-cluster-token when it is made",
        )
    })
}

async fn status(client: Result<Client, Trouble>) -> Result<(Client, StatusResponse), String> {
    let mut client = client.map_err(|trouble| AuthorityError::from(trouble).to_string())?;
    match timeout(PATIENCE, client.status()).await {
        Ok(Ok(status)) => Ok((client, status)),
        Ok(Err(error)) => Err(reason(error)),
        Err(_) => Err("no answer in time".into()),
    }
}

/// What a person can do something with; the whole of it is for those who debug the client.
fn reason(error: Error) -> String {
    match error {
        Error::GRpcStatus(status) => status.message().to_owned(),
        other => other.to_string(),
    }
}

/// A linearizable read: its header is what etcd itself stands for, and it shows the number that was left there.
async fn shown(client: &mut Client, layout: &Layout) -> Result<(Sighting, Option<String>), String> {
    match timeout(PATIENCE, client.get(layout.landmark(), None)).await {
        Ok(Ok(answer)) => {
            let seen = sighting(answer.header()).map_err(|error| error.to_string())?;
            Ok((seen, Instance::shown_by(&answer).map(|shown| shown.number)))
        }
        Ok(Err(error)) => Err(reason(error)),
        Err(_) => Err("no answer in time".into()),
    }
}

fn all_answer(answering: usize, silent: &[String]) -> Finding {
    if silent.is_empty() {
        return Finding::good(Subject::Members, format!("all {answering} that are named answer"));
    }
    Finding::doubtful(
        Subject::Members,
        format!(
            "{} of {} do not answer: {}",
            silent.len(),
            silent.len() + answering,
            silent.join("; ")
        ),
        "bring them back before another one fails",
    )
}

fn version<'a>(versions: impl Iterator<Item = &'a str>) -> Finding {
    let mut all: Vec<&str> = versions.collect();
    all.sort_unstable();
    all.dedup();
    let says = format!("etcd {}", all.join(", "));
    // The member that is supported least tells what to expect.
    match all.iter().map(|version| support(version)).max() {
        Some(Support::TooOld) => {
            Finding::bad(Subject::EtcdVersion, says, "3.4 is the oldest that will do")
        }
        Some(Support::Forgetful) => Finding::doubtful(
            Subject::EtcdVersion,
            format!("{says}: a crash while it compacts can set its revision back"),
            "upgrade to 3.4.32, 3.5.14 or newer; until then the epoch moves on when it happens",
        ),
        Some(Support::Untested | Support::Unknown) => Finding::doubtful(
            Subject::EtcdVersion,
            format!("{says}: this fencepost has been tested with etcd {} only", tested()),
            "run a tested release of etcd, or a newer fencepost that names this one",
        ),
        Some(Support::Tested) | None => Finding::good(Subject::EtcdVersion, says),
    }
}

fn memory(shown: &Sighting, known: Option<&KnownEtcd>) -> Vec<Finding> {
    let Sighting { cluster, revision, term } = shown;
    let Some(known) = known else {
        return vec![Finding::good(
            Subject::Memory,
            format!("cluster {cluster} at revision {revision}; the store has not met an etcd yet"),
        )];
    };
    let memory = if known.cluster != *cluster {
        Finding::bad(
            Subject::Memory,
            format!("this is cluster {cluster}, and {} was seen before", known.cluster),
            "no lock is granted from another cluster; correct --authority, or move the store with \
             `fencepost authority move`",
        )
    } else if *revision < known.revision {
        backwards(format!("it is at revision {revision}, and was at {} before", known.revision))
    } else if *term < known.term {
        backwards(format!("it is in term {term}, and was in {} before", known.term))
    } else {
        let says =
            format!("cluster {cluster} at revision {revision}, seen up to {}", known.revision);
        Finding::good(Subject::Memory, says)
    };
    vec![memory, epoch(known)]
}

fn backwards(says: String) -> Finding {
    Finding::doubtful(
        Subject::Memory,
        says,
        "it was restored or wiped; the epoch will move on before the next grant, and every holder \
         must acquire its lock again",
    )
}

fn epoch(known: &KnownEtcd) -> Finding {
    let epoch = known.epoch;
    let Some(moved_at) = known.moved_at else {
        return Finding::good(Subject::Epoch, format!("{epoch}; it has never moved"));
    };
    let says = format!("{epoch}, since {}", humantime::format_rfc3339_seconds(moved_at));
    match SystemTime::now().duration_since(moved_at) {
        Ok(age) if age > LATELY => Finding::good(Subject::Epoch, says),
        _ => Finding::doubtful(
            Subject::Epoch,
            says,
            "find out who restored etcd or moved the store; all grants from before are lost",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::Grade;

    fn grade(versions: &[&str]) -> Grade {
        version(versions.iter().copied()).grade
    }

    #[test]
    fn the_oldest_member_tells_what_to_expect() {
        for (versions, expected) in [
            (&["3.3.27"][..], Grade::Bad),
            (&["3.4.31"], Grade::Doubtful),
            (&["3.4.32"], Grade::Good),
            (&["3.7.3"], Grade::Good),
            (&["3.8.0"], Grade::Doubtful),
            (&["not a number"], Grade::Doubtful),
            (&["3.7.3", "3.8.0"], Grade::Doubtful),
            (&["3.5.14", "3.4.31"], Grade::Doubtful),
            (&["3.5.14", "3.3.0"], Grade::Bad),
        ] {
            assert_eq!(grade(versions), expected, "{versions:?}");
        }
        let mixed = version(["3.5.14", "3.4.32", "3.5.14"].into_iter());
        assert_eq!(mixed.says, "etcd 3.4.32, 3.5.14");
    }

    #[test]
    fn those_that_are_silent_are_counted() {
        assert_eq!(all_answer(3, &[]).says, "all 3 that are named answer");
        let one = all_answer(2, &["a: gone".into()]);
        assert_eq!(
            (one.grade, one.says.as_str()),
            (Grade::Doubtful, "1 of 3 do not answer: a: gone")
        );
    }

    #[test]
    fn less_than_is_remembered_is_backwards() {
        let known = |revision, term| {
            let cluster = "c".into();
            KnownEtcd { epoch: 0, revision, cluster, term, moved_at: None }
        };
        let seen = |cluster: &str| Sighting { revision: 10, cluster: cluster.into(), term: 3 };
        let grade = |known: &KnownEtcd| memory(&seen("c"), Some(known))[0].grade;
        assert_eq!(grade(&known(10, 3)), Grade::Good);
        assert_eq!(grade(&known(9, 2)), Grade::Good);
        assert_eq!(grade(&known(11, 3)), Grade::Doubtful);
        assert_eq!(grade(&known(10, 4)), Grade::Doubtful);
        assert_eq!(memory(&seen("d"), Some(&known(9, 2)))[0].grade, Grade::Bad);
        assert_eq!(memory(&seen("d"), None)[0].grade, Grade::Good);
    }

    #[test]
    fn only_what_helps_is_told_of_an_error() {
        assert_eq!(reason(Error::InvalidArgs("a name".into())), "invalid arguments: a name");
    }

    #[test]
    fn a_move_of_the_epoch_is_news_for_a_week() {
        let moved = |ago: Option<Duration>| {
            let moved_at = ago.map(|ago| SystemTime::now() - ago);
            let cluster = String::new();
            epoch(&KnownEtcd { epoch: 3, revision: 9, cluster, term: 2, moved_at })
        };
        assert_eq!(moved(None), Finding::good(Subject::Epoch, "3; it has never moved"));
        assert_eq!(moved(Some(Duration::from_mins(1))).grade, Grade::Doubtful);
        assert_eq!(moved(Some(Duration::from_hours(7 * 24 - 1))).grade, Grade::Doubtful);
        assert_eq!(moved(Some(Duration::from_hours(7 * 24 + 1))).grade, Grade::Good);
    }
}
