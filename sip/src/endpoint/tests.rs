//! The endpoint as its peers and its user see it. [`world`] is two of them and a network under virtual
//! time, [`alone`] is one that is answered by hand. `scripts` are calls told event by event, `forks` those
//! with several callees, `reliable` those that ring reliably; `trunks`, `lookups`, `challenges` and `failover` are of
//! carriers, `withheld` is of those who ask for their passwords, `hosts` of where these are given,
//! `registrars` of where the realms are known from that ask for them, `passwords` of those
//! that are known by one where others are known by their address, `families` of those that are spoken with over IPv4 and over IPv6, `streams` of
//! connections, `bodies` of what they carry; `hops` is how calls got here; `torture` are the messages of RFC 4475;
//! `traces` is what is told of their messages; `field` is what other people's equipment sends; `sim` is many calls over a bad network.

mod alone;
mod bodies;
mod challenges;
mod failover;
mod families;
mod field;
mod forks;
mod hops;
mod hosts;
mod lookups;
mod passwords;
mod registrars;
mod reliable;
mod scripts;
mod sim;
mod streams;
mod torture;
mod traces;
mod trunks;
mod withheld;
mod world;
