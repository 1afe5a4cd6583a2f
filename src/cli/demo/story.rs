//! The story: the same misfortune twice, without fencing and with it.

use reqwest::Method;
use serde_json::{Value, json};

use super::{
    actor::Actor,
    stage::Stage,
    timeline::{Timeline, Who},
    worker::STOCK,
};
use crate::{
    api,
    cli::{
        client::{Address, grants::Terms, http},
        exit::Failure,
    },
};

const AT_FIRST: i64 = 100;
const A_SELLS: i64 = 30;
const B_SELLS: i64 = 50;

pub async fn tell(stage: &Stage, timeline: &Timeline) -> Result<(), Failure> {
    timeline.remark(&format!(
        "\nA shop has {AT_FIRST} pieces in stock. Worker A sells {A_SELLS}, worker B sells {B_SELLS}: \
         {} must be left.\nEach takes the lock {STOCK:?} first, with a lease of 1 s, then reads the \
         stock, and writes what is left.",
        AT_FIRST - A_SELLS - B_SELLS
    ))?;
    without_fencing(stage, timeline).await?;
    with_fencing(stage, timeline).await?;
    timeline.remark(
        "\nA lock alone cannot stop a holder that was paused: it wakes up and does not know.\n\
         A fencing token can: whoever stores the data refuses whoever is no longer the newest.",
    )?;
    timeline.remark(
        "\nTry it yourself:\n  \
         fencepost serve\n  \
         fencepost run --lock orders -- sh -c 'fencepost put orders/42 paid'\n  \
         fencepost run --help",
    )
}

async fn without_fencing(stage: &Stage, timeline: &Timeline) -> Result<(), Failure> {
    timeline.heading("Act 1: a lock without fencing")?;
    timeline
        .remark("The lock is real, but the stock is a plain file: nobody there asks for tokens.")?;
    let file = stage.file();
    let failed = |error| Failure::failed(format!("{}: {error}", file.display()));
    std::fs::write(&file, AT_FIRST.to_string()).map_err(failed)?;

    let mut a = misfortune(stage, timeline, false).await?;
    let wrote = a.does("wrote").await?;
    let text = format!("writes {}: the file takes it", wrote["stock"]);
    timeline.event(Who::A, "wrote", wrote, &text).await?;
    let lost = a.does("lock-lost").await?;
    let text = "wants to give the lock back, and only now hears that it was lost";
    timeline.event(Who::A, "lost", lost, text).await?;

    let stock = std::fs::read_to_string(&file).map_err(failed)?;
    as_it_must_be(&stock, AT_FIRST - A_SELLS)?;
    timeline.outcome(
        false,
        &format!("The stock is {stock}. B's sale of {B_SELLS} is lost, and nobody was told."),
    )
}

async fn with_fencing(stage: &Stage, timeline: &Timeline) -> Result<(), Failure> {
    timeline.heading("Act 2: the same with fencing")?;
    timeline.remark(
        "The stock is kept by Fencepost. Reads and writes carry the token of the lock they are made \
         under.",
    )?;
    let address = Address::of(&stage.url)?;
    let token = open_the_shop(&address).await?;
    let text = format!("the shop opens: {AT_FIRST} pieces, written under token {token}");
    timeline
        .event(Who::World, "stock", json!({ "stock": AT_FIRST, "token": token }), &text)
        .await?;

    let mut a = misfortune(stage, timeline, true).await?;
    let refused = a.does("stale-token").await?;
    let text = format!(
        "writes {}: refused, {} stale-token: token {} has been seen",
        AT_FIRST - A_SELLS,
        refused["status"],
        refused["mark"]
    );
    timeline.event(Who::A, "refused", refused, &text).await?;
    let before = stock(&address).await?;
    as_it_must_be(&before, AT_FIRST - B_SELLS)?;
    let text = format!("the stock is still {before}: B's sale stands");
    timeline.event(Who::World, "stock", json!({ "stock": before }), &text).await?;
    a.does("asks").await?;
    let text = "knows now that it was too late, and starts over";
    timeline.event(Who::A, "asks", json!({}), text).await?;
    works(&mut a, timeline).await?;
    writes(&mut a, timeline).await?;

    let stock = stock(&address).await?;
    as_it_must_be(&stock, AT_FIRST - A_SELLS - B_SELLS)?;
    timeline.outcome(true, &format!("The stock is {stock}. Nothing is lost."))
}

/// A is frozen between its read and its write, for longer than its lease; B takes over, and A wakes
/// up.
async fn misfortune(stage: &Stage, timeline: &Timeline, fenced: bool) -> Result<Actor, Failure> {
    let mut a = Actor::enters(stage, Who::A, A_SELLS, fenced)?;
    a.does("asks").await?;
    works(&mut a, timeline).await?;
    a.freeze()?;
    let text = "A is frozen (SIGSTOP), as by a long garbage collection or a busy host";
    timeline.event(Who::World, "frozen", json!({ "pid": a.pid() }), text).await?;
    a.may_write().await?;

    let mut b = Actor::enters(stage, Who::B, B_SELLS, fenced)?;
    b.does("asks").await?;
    let text = "asks for the lock, and waits: A's lease has to run out";
    timeline.event(Who::B, "asks", json!({}), text).await?;
    works(&mut b, timeline).await?;
    writes(&mut b, timeline).await?;

    timeline
        .event(
            Who::World,
            "woken",
            json!({ "pid": a.pid() }),
            "A wakes up (SIGCONT), and has noticed nothing",
        )
        .await?;
    a.wake()?;
    Ok(a)
}

/// Up to the moment before the write.
async fn works(actor: &mut Actor, timeline: &Timeline) -> Result<(), Failure> {
    let granted = actor.does("granted").await?;
    let text = format!("gets the lock, with token {}", granted["token"]);
    timeline.event(actor.who, "granted", granted, &text).await?;
    let read = actor.does("read").await?;
    let text = format!("reads {}, and will write {}", read["stock"], read["will_write"]);
    timeline.event(actor.who, "read", read, &text).await
}

async fn writes(actor: &mut Actor, timeline: &Timeline) -> Result<(), Failure> {
    actor.may_write().await?;
    let wrote = actor.does("wrote").await?;
    let text = format!("writes {}", wrote["stock"]);
    timeline.event(actor.who, "wrote", wrote, &text).await?;
    // On a very slow machine its lease may have ended; nobody else wanted the lock.
    let done = actor.does_something().await?;
    let text = if done["event"] == "released" { "gives the lock back" } else { "is done" };
    timeline.event(actor.who, "released", done, text).await
}

async fn open_the_shop(address: &Address) -> Result<Value, Failure> {
    // Nobody waits for it to end, so it may be long enough for any machine.
    let grant = Terms::new("10s", "8s", "the shop")?.acquire(address, STOCK).await?;
    let token = grant["token"].to_string();
    let request = address.request(Method::PUT, "/v1/resources/", STOCK)?;
    http::send(request.header(api::FENCING_TOKEN, &token).body(AT_FIRST.to_string())).await?;
    let request = address.request(Method::DELETE, "/v1/locks/", STOCK)?;
    http::send(request.header(api::FENCING_TOKEN, &token)).await?;
    Ok(grant["token"].clone())
}

async fn stock(address: &Address) -> Result<String, Failure> {
    let request = address.request(Method::GET, "/v1/resources/", STOCK)?;
    http::send(request).await?.text().await.map_err(http::unreachable)
}

/// What is told must be what has happened.
fn as_it_must_be(stock: &str, expected: i64) -> Result<(), Failure> {
    if stock == expected.to_string() {
        return Ok(());
    }
    let stock = Value::from(stock);
    Err(Failure::failed(format!(
        "the stock should be {expected}, and is {stock}: please report it"
    )))
}
