//! Whom the generator talks to, and how.

use std::io;

use etcd_client::{Compare, CompareOp, KvClient, Txn, TxnOp};

use super::{
    template::{self, Template},
    wire::{Connection, Protocol},
};

#[derive(Clone)]
pub enum Target {
    /// Bytes over TCP. Clients take the addresses in turn.
    Wire { addresses: Vec<String>, template: Template, protocol: Protocol },
    /// etcd by gRPC.
    Etcd { address: String },
}

impl Target {
    pub fn puts(address: &str) -> Self {
        Self::http(address, Template::put(address), 200)
    }

    /// Puts of keys that may be new.
    pub fn puts_of_any_key(address: &str) -> Self {
        let addresses = vec![address.to_owned()];
        Self::Wire { addresses, template: Template::put(address), protocol: Protocol::HttpWritten }
    }

    /// Puts to several servers, each by its share of the clients.
    pub fn puts_to(addresses: &[&str]) -> Self {
        let template = Template::put(addresses[0]);
        let addresses = addresses.iter().map(ToString::to_string).collect();
        Self::Wire { addresses, template, protocol: Protocol::Http(200) }
    }

    /// Puts with a token that a newer one has overtaken.
    pub fn stale_puts(address: &str) -> Self {
        Self::http(address, Template::stale_put(address), 409)
    }

    pub fn stale_puts_by(address: &str, bearer: &str) -> Self {
        Self::http(address, Template::stale_put_by(address, bearer), 409)
    }

    pub fn scoped_puts(address: &str) -> Self {
        Self::http(address, Template::scoped_put(address), 200)
    }

    pub fn fenced_gets(address: &str) -> Self {
        Self::http(address, Template::fenced_get(address), 200)
    }

    pub fn gets(address: &str) -> Self {
        Self::http(address, Template::get(address), 200)
    }

    pub fn etcd_gateway(address: &str) -> Self {
        Self::http(address, Template::etcd_json(address), 200)
    }

    pub fn redis(address: &str, script: &str) -> Self {
        let addresses = vec![address.to_owned()];
        Self::Wire { addresses, template: Template::redis(script), protocol: Protocol::Redis }
    }

    fn http(address: &str, template: Template, status: u16) -> Self {
        let addresses = vec![address.to_owned()];
        Self::Wire { addresses, template, protocol: Protocol::Http(status) }
    }

    /// Clients, each with a connection of its own; by gRPC they share one, as its clients do.
    pub async fn clients(&self, numbers: std::ops::Range<usize>) -> io::Result<Vec<Client>> {
        let mut clients = Vec::new();
        match self {
            Self::Wire { addresses, template, protocol } => {
                for number in numbers {
                    let address = &addresses[number % addresses.len()];
                    let connection = Connection::open(address, *protocol).await?;
                    clients.push(Client::Wire { connection, template: template.of_client(number) });
                }
            }
            Self::Etcd { address } => {
                let client = etcd_client::Client::connect([address], None).await;
                let client = client.map_err(io::Error::other)?;
                clients.extend(numbers.map(|_| Client::Etcd(Box::new(client.kv_client()))));
            }
        }
        Ok(clients)
    }
}

pub enum Client {
    Wire { connection: Connection, template: Template },
    Etcd(Box<KvClient>),
}

impl Client {
    pub async fn ask(&mut self, key: u64) -> io::Result<()> {
        match self {
            Self::Wire { connection, template } => {
                connection.exchange(template.fill(key)).await.map(drop)
            }
            Self::Etcd(client) => {
                let key = template::key(key);
                let fence = Compare::value(&*key, CompareOp::Less, template::etcd_bound());
                let put = TxnOp::put(&*key, template::etcd_value(), None);
                let refused = TxnOp::get(&*key, None);
                let txn = Txn::new().when([fence]).and_then([put]).or_else([refused]);
                let answer = client.txn(txn).await.map_err(io::Error::other)?;
                if answer.succeeded() {
                    Ok(())
                } else {
                    Err(io::Error::other("etcd refused a write"))
                }
            }
        }
    }
}
