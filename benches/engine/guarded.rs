//! A fencepost that wants to know who asks, by bearer tokens, on everybody's database.

use super::it::harness::{access::Access, fencepost::Fencepost, http::Client};

pub struct Guarded {
    pub server: Fencepost,
    pub bearer: String,
    /// Its tokens are in there.
    _access: Access,
}

impl Guarded {
    pub async fn start(database: &str) -> Self {
        let access = Access::new();
        let bearer = access.token("bench");
        let tokens = access.path("tokens");
        let flags = ["--authority", "none", "--tokens-file", &tokens];
        let server = Fencepost::start(database, &flags);
        server.wait_until_ready().await;
        Self { server, bearer, _access: access }
    }

    pub fn client(&self) -> Client {
        Client::new(&self.server.address).bearing(&self.bearer)
    }
}
