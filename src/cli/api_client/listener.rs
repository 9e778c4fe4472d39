//! Finds the user that a command would send the operator's secret to. While the daemon is down,
//! another user of this machine could listen at its address.

use std::net::IpAddr;

use procfs::net::{TcpNetEntry, TcpState, tcp, tcp6};

use super::{address::Address, secret::Readers};

/// Who gets what is sent on a connection.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Receiver {
    /// A user who may read the secret, or another machine.
    Expected,
    /// A user who may not read it, by the user id.
    Foreign(u32),
    /// Nobody listens any more, so the other end of the connection is not known.
    Gone,
}

/// Who gets what is sent on an open connection; `peer` is the user at its other end, if it is a
/// Unix socket.
pub(super) fn receiver(address: &Address, peer: Option<u32>, readers: Readers) -> Receiver {
    let Some(users) = peer.map(|uid| vec![uid]).or_else(|| listeners(address)) else {
        return Receiver::Expected;
    };
    match users.iter().find(|uid| !readers.contain(**uid)) {
        Some(uid) => Receiver::Foreign(*uid),
        None if users.is_empty() => Receiver::Gone,
        None => Receiver::Expected,
    }
}

/// The users that listen at an address. `None` if it is on another machine, or the kernel does not tell.
fn listeners(address: &Address) -> Option<Vec<u32>> {
    let (host, port) = match address {
        Address::Unix(_) => return None,
        Address::Tcp(address) => (Some(address.ip()), address.port()),
        // Without an IP address it is `localhost`, which may be any of this machine.
        Address::Url(url) => (url.host.parse::<IpAddr>().ok(), url.port),
    };
    // Without IPv6 there is no second table.
    let sockets = tcp().ok()?.into_iter().chain(tcp6().unwrap_or_default());
    let sockets: Vec<_> = sockets.filter(|socket| accepts(socket, host, port)).collect();
    // The kernel prefers a listener at the very address to one at all addresses.
    let is_exact = |socket: &&TcpNetEntry| host.is_some_and(|host| own_ip(socket) == host.to_canonical());
    let has_exact = sockets.iter().any(|socket| is_exact(&socket));
    let users = sockets.iter().filter(|socket| !has_exact || is_exact(socket)).map(|socket| socket.uid);
    let users: Vec<_> = users.collect();
    let is_here = host.is_none_or(|host| host.to_canonical().is_loopback());
    (is_here || !users.is_empty()).then_some(users)
}

fn own_ip(socket: &TcpNetEntry) -> IpAddr {
    socket.local_address.ip().to_canonical()
}

/// Whether it is a listener that gets connections to a host and port.
fn accepts(socket: &TcpNetEntry, host: Option<IpAddr>, port: u16) -> bool {
    let own = own_ip(socket);
    socket.state == TcpState::Listen
        && socket.local_address.port() == port
        && (own.is_unspecified() || host.is_none_or(|host| host.to_canonical() == own))
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv6Addr, SocketAddr, TcpListener};

    use rustix::{
        net::{AddressFamily, SocketFlags, SocketType, bind, listen, socket_with, sockopt},
        process::geteuid,
    };

    use super::*;

    #[test]
    fn listeners_of_all_kinds_are_found() {
        for (at, name) in [
            ("127.0.0.1:0", "http://127.0.0.1:"),
            ("127.0.0.1:0", "http://localhost:"),
            ("0.0.0.0:0", "http://127.0.0.1:"),
            ("[::1]:0", "http://[::1]:"),
            ("[::]:0", "http://127.0.0.1:"),
        ] {
            let has_gone = || {
                let listener = TcpListener::bind(at).unwrap();
                let port = listener.local_addr().unwrap().port();
                let address: Address = format!("{name}{port}").parse().unwrap();
                assert_eq!(listeners(&address), Some(vec![geteuid().as_raw()]), "{at} {address}");
                drop(listener);
                listeners(&address) == Some(Vec::new())
            };
            // Another test may have the port at once, but not five times.
            assert!((0..5).any(|_| has_gone()), "{at} {name}");
        }
        assert_eq!(listeners(&"http://192.0.2.1:7420".parse().unwrap()), None);
    }

    #[test]
    fn a_listener_at_the_very_address_counts_and_one_at_all_addresses_does_not() {
        let exact = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = exact.local_addr().unwrap();
        let all = socket_with(AddressFamily::INET6, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
        sockopt::set_ipv6_v6only(&all, true).unwrap();
        bind(&all, &SocketAddr::from((Ipv6Addr::UNSPECIFIED, address.port()))).unwrap();
        listen(&all, 1).unwrap();
        let own = geteuid().as_raw();
        assert_eq!(listeners(&address.to_string().parse().unwrap()), Some(vec![own]));
        assert_eq!(
            listeners(&format!("http://localhost:{}", address.port()).parse().unwrap()),
            Some(vec![own; 2])
        );
        drop(exact);
        assert_eq!(listeners(&address.to_string().parse().unwrap()), Some(vec![own]));
    }

    #[test]
    fn only_readers_of_the_secret_s_file_are_expected() {
        let readers = Readers::of(std::path::Path::new("/proc/self/exe")).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address: Address = listener.local_addr().unwrap().to_string().parse().unwrap();
        assert_eq!(receiver(&address, None, readers), Receiver::Expected);
        assert_eq!(receiver(&address, Some(0), readers), Receiver::Expected);
        assert_eq!(receiver(&address, Some(4_000_000_000), readers), Receiver::Foreign(4_000_000_000));
        drop(listener);
        assert_eq!(receiver(&address, None, readers), Receiver::Gone);
    }
}
