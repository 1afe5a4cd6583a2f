//! What somebody would write who has Fencepost's table and no Fencepost: the fence in the condition
//! of one upsert, one statement for each write. pgbench and the plain proxy both run it.

/// Leaves the row as Fencepost would. It is spared the floor, scopes, seqs and preconditions.
pub const UPSERT: &str = "
INSERT INTO fencepost.resources AS r (key, token, value, content_type, version, created)
VALUES ({key}, {token}, {value}, 'text/plain', 1, true)
ON CONFLICT (key) DO UPDATE SET
    token = EXCLUDED.token, seq = 0, digest = NULL, value = EXCLUDED.value,
    content_type = EXCLUDED.content_type, version = r.version + 1, created = r.value IS NULL,
    touched_at = now()
WHERE r.token <= EXCLUDED.token
RETURNING version, created";

pub const SELECT: &str = "
SELECT token, seq, version, value, content_type FROM fencepost.resources WHERE key = {key}";

/// As many resources as there are `{keys}`.
pub const SEED: &str = "
INSERT INTO fencepost.resources (key, token, value, content_type, version, created)
SELECT 'bench/' || lpad(n::text, 9, '0'), 7, convert_to(repeat('v', 200), 'UTF8'), 'text/plain', 1, true
FROM generate_series(0, {keys} - 1) AS n";

pub fn with(statement: &str, parameters: &[(&str, &str)]) -> String {
    parameters
        .iter()
        .fold(statement.to_owned(), |sql, (name, value)| sql.replace(&format!("{{{name}}}"), value))
}
