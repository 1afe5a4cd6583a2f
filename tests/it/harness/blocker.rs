//! Somebody else's transaction, which keeps fencepost waiting for as long as a test likes.

use sqlx::PgConnection;

use super::{
    eventually,
    postgres::{connect, fetch},
};

pub struct Blocker {
    url: String,
    connection: PgConnection,
}

impl Blocker {
    /// Holds the row of `key`, which must be there.
    pub async fn on_row(url: &str, key: &str) -> Self {
        let row = format!("SELECT key FROM fencepost.resources WHERE key = '{key}' FOR UPDATE");
        Self::holding(url, &row).await
    }

    /// Holds whatever `statement` locks.
    pub async fn holding(url: &str, statement: &str) -> Self {
        let mut connection = connect(url).await;
        let begin = format!("BEGIN; {statement}");
        sqlx::raw_sql(sqlx::AssertSqlSafe(begin)).execute(&mut connection).await.expect("a lock");
        Self { url: url.to_owned(), connection }
    }

    /// Makes every commit of a changed resource wait for this blocker, at the very end.
    pub async fn on_commits(url: &str) -> Self {
        super::postgres::execute(
            url,
            "CREATE FUNCTION public.wait_at_commit() RETURNS trigger LANGUAGE plpgsql AS $$
             BEGIN PERFORM pg_advisory_xact_lock_shared(1); RETURN NULL; END $$;
             CREATE CONSTRAINT TRIGGER wait_at_commit AFTER INSERT OR UPDATE
                 ON fencepost.resources DEFERRABLE INITIALLY DEFERRED
                 FOR EACH ROW EXECUTE FUNCTION public.wait_at_commit()",
        )
        .await;
        Self::holding(url, "SELECT pg_advisory_xact_lock(1)").await
    }

    /// Until exactly `count` statements of fencepost wait for a lock.
    pub async fn until_waiting(&self, count: i64) {
        let url = &self.url;
        eventually(&format!("{count} statements wait for a lock"), || async move {
            waiting(url).await == count
        })
        .await;
    }

    /// How many statements of fencepost wait for a lock.
    pub async fn waiting(&self) -> i64 {
        waiting(&self.url).await
    }

    pub async fn release(mut self) {
        sqlx::raw_sql("ROLLBACK").execute(&mut self.connection).await.expect("the locks go");
    }
}

async fn waiting(url: &str) -> i64 {
    fetch(
        url,
        "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'fencepost'
         AND datname = current_database() AND wait_event_type = 'Lock'",
    )
    .await
}
