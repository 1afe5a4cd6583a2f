//! A trigger that writes down the settings under which fencepost's own statements ran. Asking on
//! another connection would prove nothing about those.

use std::collections::BTreeMap;

use sqlx::Row;

use super::postgres::{connect, execute, name_of};

/// What each setting must be while a fencepost writes, whatever the database's defaults are.
pub const PINNED: [(&str, &str); 8] = [
    ("transaction_isolation", "read committed"),
    ("synchronous_commit", "on"),
    ("lock_timeout", "100ms"),
    ("idle_in_transaction_session_timeout", "10s"),
    ("client_connection_check_interval", "2s"),
    ("client_min_messages", "warning"),
    // For rows by their keys, in key order.
    ("enable_seqscan", "off"),
    ("enable_bitmapscan", "off"),
];

/// These cannot be set for one transaction only, so a pooler's connections do not have them.
pub const PINNED_DIRECTLY: [(&str, &str); 3] = [
    ("tcp_keepalives_idle", "30"),
    ("tcp_keepalives_interval", "10"),
    ("tcp_keepalives_count", "3"),
];

/// Gives every pinned setting a default that would be harmful, and others one that is unusual.
pub async fn make_hostile(url: &str) {
    for (setting, value) in [
        ("default_transaction_isolation", "serializable"),
        ("synchronous_commit", "off"),
        ("lock_timeout", "0"),
        ("idle_in_transaction_session_timeout", "0"),
        ("client_connection_check_interval", "0"),
        ("client_min_messages", "error"),
        ("tcp_keepalives_idle", "7000"),
        ("tcp_keepalives_interval", "70"),
        ("tcp_keepalives_count", "7"),
        ("bytea_output", "escape"),
        ("search_path", "pg_catalog"),
        ("plan_cache_mode", "force_generic_plan"),
    ] {
        let database = name_of(url);
        execute(url, &format!("ALTER DATABASE {database} SET {setting} = '{value}'")).await;
    }
}

/// Starts to watch a database that has the schema.
pub async fn install(url: &str) {
    execute(
        url,
        "CREATE TABLE public.witness (key text, setting text, value text);
         CREATE FUNCTION public.bear_witness() RETURNS trigger LANGUAGE plpgsql AS $$
         BEGIN
             INSERT INTO public.witness
             SELECT NEW.key, name, current_setting(name)
             FROM unnest(ARRAY['transaction_isolation', 'synchronous_commit', 'lock_timeout',
                 'idle_in_transaction_session_timeout', 'client_connection_check_interval',
                 'tcp_keepalives_idle', 'tcp_keepalives_interval', 'tcp_keepalives_count',
                 'enable_seqscan', 'enable_bitmapscan', 'client_min_messages', 'application_name']) AS name;
             RETURN NULL;
         END $$;
         CREATE TRIGGER witness AFTER INSERT OR UPDATE ON fencepost.resources
             FOR EACH ROW EXECUTE FUNCTION public.bear_witness();",
    )
    .await;
}

/// Every value that a setting had while keys that start with `prefix` were written.
pub async fn testimony(url: &str, prefix: &str) -> BTreeMap<String, Vec<String>> {
    let mut connection = connect(url).await;
    let rows = sqlx::query(
        "SELECT setting, array_agg(DISTINCT value) AS values FROM public.witness
         WHERE starts_with(key, $1) GROUP BY setting",
    )
    .bind(prefix)
    .fetch_all(&mut connection)
    .await
    .expect("the witness speaks");
    rows.iter().map(|row| (row.get("setting"), row.get("values"))).collect()
}
