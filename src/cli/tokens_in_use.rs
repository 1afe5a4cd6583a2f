//! Which tokens are held, and which can have been issued: what the floor must not pass.
//!
//! Nothing is changed by asking. The lock table of the store is always asked, whatever the authority:
//! it costs nothing, and what is held there must not be fenced off either. If the authority cannot be
//! asked, or is not the one that this store has its tokens from, there is no answer, and the command ends.

use clap::Args;

use super::exit::Failure;
use crate::{
    authority::{AuthorityError, etcd},
    settings::{AuthoritySettings, AuthorityUrl, EtcdSettings, Source},
    store::{FloorState, HeldToken, Reading, Store},
    token::Token,
};

/// Tokens from here on come from no authority.
pub const ISSUED_BY_NOBODY: i64 = 1 << 62;

#[derive(Args)]
pub struct TokenSettings {
    #[command(flatten)]
    authority: AuthoritySettings,

    #[command(flatten)]
    etcd: EtcdSettings,
}

impl TokenSettings {
    pub fn choose(&mut self, source: impl Fn(&str) -> Source) -> Result<(), String> {
        self.authority.choose(&source)?;
        self.etcd.choose(source)
    }

    pub fn url(&self) -> Result<AuthorityUrl, Failure> {
        self.authority.url().map_err(Failure::settings)
    }
}

/// A token as an argument.
pub fn token(text: &str) -> Result<Token, String> {
    Token::parse(text)
        .ok_or_else(|| "a token is a whole number from 1 to 9223372036854775807".into())
}

/// What a floor has to respect.
pub struct TokensInUse {
    pub floor: i64,
    /// The newest token that can have been issued. `None`: nobody here knows.
    pub newest: Option<i64>,
    /// The newest token that the store has a record of. In etcd `newest` may be higher: its revision rises
    /// without any token, and a floor above what the store remembers would move the epoch.
    pub settled: Option<i64>,
    /// The lowest token that is held or waits for a lock, if any is known.
    pub lowest_held: Option<HeldToken>,
}

/// Asks the store and the authority.
pub async fn ask(
    settings: &TokenSettings,
    store: &dyn Store,
    reading: Reading,
) -> Result<TokensInUse, Failure> {
    let authority = settings.url()?;
    if let Some(recorded) = store.owning_authority().await? {
        recorded.check(&settings.etcd.owning_authority(&authority))?;
    }
    let FloorState { floor, issued, lowest_held } = store.floor(reading).await?;
    let known = store.tokens().await?.etcd;
    let by_etcd = known.as_ref().map_or(0, etcd::newest_remembered);
    match &authority {
        AuthorityUrl::None => Ok(TokensInUse { floor, newest: None, settled: None, lowest_held }),
        AuthorityUrl::Store if by_etcd > issued => Err(Failure::failed(format!(
            "the newest tokens of this store come from an etcd: {by_etcd}, and {issued} from the lock \
             table; name that etcd with --authority"
        ))),
        AuthorityUrl::Store => {
            Ok(TokensInUse { floor, newest: Some(issued), settled: Some(issued), lowest_held })
        }
        AuthorityUrl::Etcd(_) if issued > by_etcd && issued > 0 => Err(Failure::failed(format!(
            "the newest tokens of this store come from its lock table: {issued}, and {by_etcd} from an \
             etcd; give --authority store, or start a fencepost with this etcd first"
        ))),
        AuthorityUrl::Etcd(url) => {
            let Some(known) = known else { return Err(unmet()) };
            let options = settings.etcd.options(url).map_err(Failure::settings)?;
            if let Some(recorded) = store.owning_authority().await? {
                // Another one may have the same cluster id.
                let (named, _) = etcd::identify(options.clone()).await.map_err(cannot_be_asked)?;
                recorded.check(&named)?;
            }
            let found = etcd::tokens_in_use(options, &known).await.map_err(cannot_be_asked)?;
            let lowest_held = lowest_held.into_iter().chain(found.lowest_held).min();
            let (newest, settled) = (Some(found.newest), Some(by_etcd));
            Ok(TokensInUse { floor, newest, settled, lowest_held })
        }
    }
}

/// The newest token of an etcd in an epoch that an operator names: the store may have been set back to
/// before that epoch began.
pub async fn newest_in_epoch(
    settings: &TokenSettings,
    store: &dyn Store,
    epoch: u16,
) -> Result<i64, Failure> {
    let AuthorityUrl::Etcd(url) = settings.url()? else {
        return Err(Failure::settings("--epoch is for tokens from etcd"));
    };
    let options = settings.etcd.options(&url).map_err(Failure::settings)?;
    let recorded = store.owning_authority().await?;
    etcd::newest_in_epoch(options, recorded.as_ref(), epoch).await.map_err(cannot_be_asked)
}

fn unmet() -> Failure {
    Failure::failed(
        "this store has never met an etcd, so it has no tokens from one; see whether --authority and \
         --store are those of the servers",
    )
}

fn cannot_be_asked(error: AuthorityError) -> Failure {
    match error {
        AuthorityError::Unavailable(_) => Failure::Unavailable(format!(
            "nothing was changed, since etcd cannot be asked which tokens are held: {error}"
        )),
        AuthorityError::Unfit(reason) | AuthorityError::Foreign(reason) => {
            Failure::failed(format!("nothing was changed: {reason}"))
        }
        AuthorityError::Store(error) => error.into(),
    }
}
