//! What kind of place an address is: the one list that targets, resolved names and proxies are judged with.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The kinds of addresses. Only [`AddressClass::Public`] is reachable without a rule of the operator's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AddressClass {
    /// Somewhere on the public internet.
    Public,
    /// This machine.
    Loopback,
    /// A private network (RFC 1918, unique local addresses of IPv6).
    Private,
    /// Shared by a carrier's customers (RFC 6598).
    Shared,
    /// One link only. Never reachable: clouds answer there with the machine's credentials.
    LinkLocal,
    /// Where a cloud describes the machine, outside of link-local. Never reachable.
    Metadata,
    /// An IPv6 address that stands for an IPv4 address in a way that hides which. Never reachable.
    Transition,
    /// Unspecified, multicast, broadcast, for documentation, for benchmarks, or reserved. Never reachable.
    Special,
}

impl fmt::Display for AddressClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Public => "a public address",
            Self::Loopback => "an address of this machine",
            Self::Private => "an address of a private network",
            Self::Shared => "an address that a carrier shares among customers",
            Self::LinkLocal => "a link-local address",
            Self::Metadata => "the address of a cloud's metadata",
            Self::Transition => "an address that hides another one",
            Self::Special => "no address of a single machine",
        })
    }
}

use AddressClass::{LinkLocal, Loopback, Metadata, Private, Public, Shared, Special, Transition};

/// Prefixes of IPv4 in the order in which they are looked at; what is in none is public.
const V4: &[(Ipv4Addr, u32, AddressClass)] = &[
    // Single machines that clouds answer from, before the networks that they lie in.
    (Ipv4Addr::new(100, 100, 100, 200), 32, Metadata),
    (Ipv4Addr::new(168, 63, 129, 16), 32, Metadata),
    (Ipv4Addr::new(192, 0, 0, 192), 32, Metadata),
    (Ipv4Addr::new(0, 0, 0, 0), 8, Special),
    (Ipv4Addr::new(10, 0, 0, 0), 8, Private),
    (Ipv4Addr::new(100, 64, 0, 0), 10, Shared),
    (Ipv4Addr::new(127, 0, 0, 0), 8, Loopback),
    (Ipv4Addr::new(169, 254, 0, 0), 16, LinkLocal),
    (Ipv4Addr::new(172, 16, 0, 0), 12, Private),
    (Ipv4Addr::new(192, 0, 0, 0), 24, Special),
    (Ipv4Addr::new(192, 0, 2, 0), 24, Special),
    (Ipv4Addr::new(192, 88, 99, 0), 24, Transition),
    (Ipv4Addr::new(192, 168, 0, 0), 16, Private),
    (Ipv4Addr::new(198, 18, 0, 0), 15, Special),
    (Ipv4Addr::new(198, 51, 100, 0), 24, Special),
    (Ipv4Addr::new(203, 0, 113, 0), 24, Special),
    (Ipv4Addr::new(224, 0, 0, 0), 4, Special),
    (Ipv4Addr::new(240, 0, 0, 0), 4, Special),
];

/// Prefixes of IPv6, likewise; what is in none is public only inside of 2000::/3.
const V6: &[(Ipv6Addr, u32, AddressClass)] = &[
    (Ipv6Addr::LOCALHOST, 128, Loopback),
    (Ipv6Addr::UNSPECIFIED, 128, Special),
    // Mapped and compatible IPv4 addresses: no resolver has a reason to answer with one.
    (Ipv6Addr::UNSPECIFIED, 96, Transition),
    (Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, 0, 0), 96, Transition),
    (Ipv6Addr::new(0, 0, 0, 0, 0xffff, 0, 0, 0), 96, Transition),
    // NAT64 with a prefix of a network's own: the network decides what it means.
    (Ipv6Addr::new(0x64, 0xff9b, 1, 0, 0, 0, 0, 0), 48, Transition),
    // Teredo, then the rest of what the registry keeps for special purposes.
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 32, Transition),
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23, Special),
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32, Special),
    // 6to4.
    (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16, Transition),
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20, Special),
    // All of a provider's services for its machines, credentials among them.
    (Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0), 32, Metadata),
    (Ipv6Addr::new(0xfd00, 0xc1, 0, 0, 0, 0, 0xa9fe, 0xa9fe), 128, Metadata),
    (Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254), 128, Metadata),
    (Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 0), 7, Private),
    (Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 10, LinkLocal),
    // The old site-local addresses.
    (Ipv6Addr::new(0xfec0, 0, 0, 0, 0, 0, 0, 0), 10, Special),
    (Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0), 8, Special),
];

/// NAT64 as RFC 6052 has it: the last four bytes are the IPv4 address.
const NAT64: (Ipv6Addr, u32) = (Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0), 96);

/// The kind of an address.
#[must_use]
pub fn classify(address: IpAddr) -> AddressClass {
    match address {
        IpAddr::V4(v4) => classify_v4(v4),
        IpAddr::V6(v6) => classify_v6(v6),
    }
}

fn classify_v4(address: Ipv4Addr) -> AddressClass {
    let bits = address.to_bits();
    let found = V4.iter().find(|(base, length, _)| {
        let mask = u32::MAX.checked_shl(32 - length).unwrap_or(0);
        bits & mask == base.to_bits()
    });
    found.map_or(Public, |(_, _, class)| *class)
}

fn classify_v6(address: Ipv6Addr) -> AddressClass {
    if inside(address, NAT64.0, NAT64.1) {
        let [.., a, b, c, d] = address.octets();
        // RFC 6052 forbids the well-known prefix for anything but public addresses.
        return match classify_v4(Ipv4Addr::new(a, b, c, d)) {
            Public => Public,
            _ => Transition,
        };
    }
    // ISATAP hides an IPv4 address in the interface part of any prefix.
    let [.., e, f, _, _] = address.segments();
    if f == 0x5efe && matches!(e, 0 | 0x200) {
        return Transition;
    }
    let found = V6.iter().find(|(base, length, _)| inside(address, *base, *length));
    match found {
        Some((_, _, class)) => *class,
        None if inside(address, Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3) => Public,
        None => Special,
    }
}

fn inside(address: Ipv6Addr, base: Ipv6Addr, length: u32) -> bool {
    let mask = u128::MAX.checked_shl(128 - length).unwrap_or(0);
    address.to_bits() & mask == base.to_bits()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(class: AddressClass, addresses: &[&str]) {
        for text in addresses {
            let address = text.parse().unwrap_or_else(|_| panic!("{text} is an address"));
            assert_eq!(classify(address), class, "{text}");
        }
    }

    #[test]
    fn public_addresses_are_public() {
        let v4 = ["1.1.1.1", "8.8.8.8", "9.255.255.255", "11.0.0.0", "100.63.255.255"];
        check(Public, &v4);
        let edges = ["100.128.0.0", "126.255.255.255", "128.0.0.0", "169.253.255.255"];
        check(Public, &edges);
        let more = ["172.15.255.255", "172.32.0.0", "192.167.255.255", "192.169.0.0"];
        check(Public, &more);
        check(Public, &["198.17.255.255", "198.20.0.0", "223.255.255.255", "192.0.1.0"]);
        check(Public, &["2606:4700:4700::1111", "2001:4860:4860::8888", "2a00::1", "2003::1"]);
        // NAT64 of a public address is how a network without IPv4 reaches it.
        check(Public, &["64:ff9b::8.8.8.8"]);
    }

    #[test]
    fn places_inside_are_told_apart() {
        check(Loopback, &["127.0.0.1", "127.0.0.0", "127.255.255.255", "::1"]);
        check(Private, &["10.0.0.1", "10.255.255.255", "172.16.0.1", "172.31.255.255"]);
        check(Private, &["192.168.0.1", "192.168.255.255", "fc00::1", "fdff::1"]);
        check(Shared, &["100.64.0.0", "100.127.255.255"]);
        check(LinkLocal, &["169.254.169.254", "169.254.0.0", "fe80::1", "febf::1"]);
        let metadata = ["100.100.100.200", "168.63.129.16", "192.0.0.192", "fd00:ec2::254"];
        check(Metadata, &metadata);
        check(Metadata, &["fd20:ce::254", "fd00:ec2::23", "fd00:c1::a9fe:a9fe"]);
    }

    #[test]
    fn addresses_that_hide_others_are_no_public_ones() {
        check(Transition, &["::ffff:8.8.8.8", "::ffff:127.0.0.1", "::ffff:10.0.0.1"]);
        check(Transition, &["::7f00:1", "::8.8.8.8", "::ffff:0:8.8.8.8"]);
        check(Transition, &["64:ff9b::10.0.0.1", "64:ff9b::169.254.169.254", "64:ff9b:1::1"]);
        check(Transition, &["2002:7f00:1::", "2002:808:808::1", "2001::1", "192.88.99.1"]);
        check(Transition, &["2606:4700::5efe:a00:1", "2606:4700::200:5efe:a00:1"]);
    }

    #[test]
    fn addresses_of_nobody_are_special() {
        check(Special, &["0.0.0.0", "0.1.2.3", "192.0.2.1", "198.51.100.1", "203.0.113.1"]);
        check(Special, &["198.18.0.1", "198.19.255.255", "224.0.0.1", "239.255.255.255"]);
        check(Special, &["240.0.0.1", "255.255.255.255", "192.0.0.1", "::", "ff02::1"]);
        check(Special, &["2001:db8::1", "3fff::1", "2001:2::1", "fec0::1", "5f00::1"]);
        check(Special, &["4000::1", "100::1", "e000::1"]);
    }

    proptest::proptest! {
        /// What this list calls public, a second opinion with other code calls nothing else.
        #[test]
        fn no_address_is_public_that_the_standard_library_knows_better(bits: u32, wide: u128) {
            let v4 = Ipv4Addr::from_bits(bits);
            if classify(v4.into()) == Public {
                let odd = v4.is_private() || v4.is_loopback() || v4.is_link_local()
                    || v4.is_broadcast() || v4.is_documentation() || v4.is_unspecified()
                    || v4.is_multicast();
                proptest::prop_assert!(!odd, "{v4}");
            }
            let v6 = Ipv6Addr::from_bits(wide);
            if classify(v6.into()) == Public {
                proptest::prop_assert!(v6.to_ipv4().is_none() && !v6.is_multicast());
                proptest::prop_assert!(!v6.is_unique_local() && !v6.is_unicast_link_local());
            }
            // Mapped in whatever way, an address never becomes public that was none.
            proptest::prop_assert_eq!(classify(v4.to_ipv6_mapped().into()), Transition);
        }
    }
}
