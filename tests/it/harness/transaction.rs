//! Somebody else's transaction in Postgres, which holds locks for as long as a test likes.

use reqwest::RequestBuilder;
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use tokio::task::JoinHandle;

use super::{
    eventually,
    http::{Answer, answer},
    postgres,
    store::TestStore,
};

pub struct Transaction {
    connection: PgConnection,
    url: String,
}

impl Transaction {
    /// `sql` is what it has done so far.
    pub async fn begin(store: &TestStore, sql: &str) -> Self {
        let mut connection = postgres::connect(&store.url).await;
        let sql = format!("SET search_path = fencepost; BEGIN; {sql}");
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut connection).await.expect("it begins");
        Self { connection, url: store.url.clone() }
    }

    /// Sends a request, and returns once Postgres says that it waits for a lock; and for longer than
    /// a lane would, which lets go of it once and then has it wait elsewhere.
    pub async fn makes_wait(&self, request: RequestBuilder) -> JoinHandle<Answer> {
        let request = tokio::spawn(answer(request));
        eventually("the write waits for the lock", || async {
            self.says(
                "SELECT FROM pg_stat_activity WHERE datname = current_database()
                       AND application_name = 'fencepost' AND wait_event_type = 'Lock'
                       AND query_start < clock_timestamp() - interval '200 ms'",
            )
            .await
        })
        .await;
        assert!(!request.is_finished());
        request
    }

    /// Whether another session sees a row for this query.
    pub async fn says(&self, query: &str) -> bool {
        let mut connection = postgres::connect(&self.url).await;
        let exists = format!("SELECT EXISTS ({query})");
        let answer = sqlx::query_scalar(AssertSqlSafe(exists)).fetch_one(&mut connection).await;
        answer.expect("an answer")
    }

    pub async fn commit(self) {
        self.end("COMMIT").await;
    }

    pub async fn roll_back(self) {
        self.end("ROLLBACK").await;
    }

    async fn end(mut self, how: &'static str) {
        sqlx::raw_sql(how).execute(&mut self.connection).await.expect("it ends");
        self.connection.close().await.expect("it closes");
    }
}
