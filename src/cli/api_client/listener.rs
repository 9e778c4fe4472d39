//! Who listens where the operator's secret would be sent to. While the daemon is down, another user of this machine could listen
//! at its address and get the secret.

use std::{fs, net::IpAddr, os::unix::fs::MetadataExt};

use procfs::net::{TcpNetEntry, TcpState, tcp, tcp6};

use super::{address::Address, secret::Readers};

/// The user id of a listener at an address of this machine that may not have the secret.
pub(super) fn foreign(address: &Address, readers: Readers) -> Option<u32> {
    listeners(address).into_iter().find(|uid| !readers.contain(*uid))
}

/// The user ids of the listeners at an address. Empty if the address is on another machine, and where the kernel does not tell.
fn listeners(address: &Address) -> Vec<u32> {
    let (host, port) = match address {
        Address::Unix(path) => return fs::metadata(path).map(|found| found.uid()).into_iter().collect(),
        Address::Tcp(address) => (Some(address.ip()), address.port()),
        // Without an IP address it is `localhost`, which may be any of this machine.
        Address::Url(url) => (url.host.parse().ok(), url.port),
    };
    let sockets = [tcp(), tcp6()].into_iter().flatten().flatten();
    sockets.filter(|socket| accepts(socket, host, port)).map(|socket| socket.uid).collect()
}

/// Whether it is a listener that gets connections to a host and port.
fn accepts(socket: &TcpNetEntry, host: Option<IpAddr>, port: u16) -> bool {
    let own = socket.local_address.ip().to_canonical();
    socket.state == TcpState::Listen
        && socket.local_address.port() == port
        && (own.is_unspecified() || host.is_none_or(|host| host.to_canonical() == own))
}

#[cfg(test)]
mod tests {
    use std::{net::TcpListener, os::unix::net::UnixListener};

    use rustix::process::geteuid;

    use super::*;

    #[test]
    fn listeners_of_all_kinds_are_found() {
        let own = geteuid().as_raw();
        for (at, name) in [
            ("127.0.0.1:0", "http://127.0.0.1:"),
            ("127.0.0.1:0", "http://localhost:"),
            ("0.0.0.0:0", "http://127.0.0.1:"),
            ("[::1]:0", "http://[::1]:"),
            ("[::]:0", "http://127.0.0.1:"),
        ] {
            let listener = TcpListener::bind(at).unwrap();
            let port = listener.local_addr().unwrap().port();
            let address: Address = format!("{name}{port}").parse().unwrap();
            assert_eq!(listeners(&address), [own], "{at} {address}");
            drop(listener);
            assert!(listeners(&address).is_empty(), "{address}");
        }
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let _listener = UnixListener::bind(&path).unwrap();
        assert_eq!(listeners(&Address::Unix(path)), [own]);
    }
}
