//! Where clients come in.

use std::{io, net::SocketAddr};

use tokio::net::{TcpListener, TcpSocket};

/// Connections that may wait to be accepted: as many as may be open, by default. They all come at once when
/// a fencepost is started again, and whoever finds no place here tries again after a second. Linux lets
/// `net.core.somaxconn` have the last word.
const BACKLOG: u32 = 4096;

/// As `TcpListener::bind` does, but that has room for 128 who wait.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    // The address may have been ours a moment ago. (On Windows this would let others have it, too.)
    #[cfg(not(windows))]
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}
