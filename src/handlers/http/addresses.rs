//! Addresses that are not on the public Internet, against requests that somebody forges through the
//! daemon.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use tokio::net::lookup_host;

/// The platform service of Azure, at an address that looks public.
const AZURE: Ipv4Addr = Ipv4Addr::new(168, 63, 129, 16);

/// Whether an address may belong to this machine, its network, or its cloud. Also of multicast and
/// reserved ranges.
pub(super) fn is_private(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_private_v4(address),
        IpAddr::V6(address) => is_private_v6(address),
    }
}

fn is_private_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    // The ranges without a test of the standard library's: this network, shared addresses of
    // carriers (100.64.0.0/10), protocol assignments, relays of 6to4, benchmarks (198.18.0.0/15),
    // and everything from 240.0.0.0 on.
    let range = a == 0
        || (a == 100 && b & 0xc0 == 64)
        || (a == 192 && b == 0 && c == 0)
        || (a == 192 && b == 88 && c == 99)
        || (a == 198 && b & 0xfe == 18)
        || a >= 240;
    range
        || address.is_private()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_multicast()
        || address.is_documentation()
        || address == AZURE
}

fn is_private_v6(address: Ipv6Addr) -> bool {
    let segments = address.segments();
    let [_, _, _, _, _, _, high, low] = segments;
    let v4 = |high: u16, low: u16| Ipv4Addr::from((u32::from(high) << 16) | u32::from(low));
    match segments {
        // An address of IPv4, mapped, compatible (with :: and ::1), or translated: its last 32
        // bits.
        [0, 0, 0, 0, 0, 0xffff | 0, ..] | [0, 0, 0, 0, 0xffff, 0, ..] | [0x64, 0xff9b, 0, 0, 0, 0, ..] => {
            is_private_v4(v4(high, low))
        }
        // 6to4.
        [0x2002, high, low, ..] => is_private_v4(v4(high, low)),
        // Everything else outside of 2000::/3: local, multicast, reserved. Inside: Teredo,
        // protocols, documentation.
        [first, second, ..] => {
            first & 0xe000 != 0x2000
                || (first == 0x2001 && (second < 0x200 || second == 0xdb8))
                || (first == 0x3fff && second < 0x1000)
        }
    }
}

/// Finds addresses of names as the system does, and leaves out the private ones. The connection is
/// made to one of the others.
#[derive(Clone, Copy, Debug)]
pub(super) struct PublicOnly;

impl Resolve for PublicOnly {
    fn resolve(&self, name: Name) -> Resolving {
        let name = name.as_str().to_owned();
        Box::pin(async move {
            let found: Vec<SocketAddr> = lookup_host((&*name, 0)).await?.collect();
            let (private, public): (Vec<_>, Vec<_>) = found.into_iter().partition(|it| is_private(it.ip()));
            match (public.is_empty(), private.first()) {
                (true, Some(address)) => {
                    let address = address.ip();
                    Err(format!("{name} has the private address {address} (forbid-private-addresses)").into())
                }
                _ => Ok(Box::new(public.into_iter()) as Addrs),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_private_range_is_known() {
        let private = "0.0.0.0 10.1.2.3 100.64.0.1 100.100.100.200 100.127.255.255 127.0.0.1 127.9.9.9 168.63.129.16 \
                       169.254.169.254 172.16.0.1 172.31.255.255 192.0.0.1 192.0.2.1 192.168.1.1 198.18.0.1 198.19.0.1 \
                       198.51.100.1 203.0.113.1 224.0.0.1 240.0.0.1 255.255.255.255 \
                       :: ::1 ::ffff:10.0.0.1 ::ffff:127.0.0.1 ::127.0.0.1 64:ff9b::a00:1 64:ff9b:1::1 100::1 \
                       2001::1 2001:db8::1 2002:7f00:1:: 2002:a00:1:: 3fff::1 fc00::1 fd00:ec2::254 fe80::1 fec0::1 ff02::1";
        for address in private.split_whitespace() {
            assert!(is_private(address.parse().unwrap()), "{address}");
        }
        let public = "1.1.1.1 8.8.8.8 100.63.255.255 100.128.0.1 172.15.0.1 172.32.0.1 192.167.1.1 198.17.0.1 198.20.0.1 \
                      223.255.255.255 ::ffff:8.8.8.8 64:ff9b::808:808 2002:808:808:: 2001:4860:4860::8888 2606:4700::1111 2a00::1";
        for address in public.split_whitespace() {
            assert!(!is_private(address.parse().unwrap()), "{address}");
        }
    }

    #[tokio::test]
    async fn a_name_with_private_addresses_only_is_refused() {
        let error = PublicOnly.resolve("localhost".parse().unwrap()).await.err().unwrap().to_string();
        assert!(error.starts_with("localhost has the private address "), "{error}");
    }
}
