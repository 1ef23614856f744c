//! Counters of a network interface by the kernel's ethtool ioctl: linux/ethtool.h.

use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixDatagram;

/// `ETHTOOL_GSSET_INFO`: number of strings in a set.
const GET_SET_INFO: u32 = 0x37;
/// `ETHTOOL_GSTRINGS`: strings of a set.
const GET_STRINGS: u32 = 0x1b;
/// `ETHTOOL_GSTATS`: counters, in the order of the strings.
const GET_COUNTERS: u32 = 0x1d;
/// `ETH_SS_STATS`: the set of counter names.
const COUNTERS: u32 = 1;
/// `ETH_GSTRING_LEN`.
const NAME: usize = 32;
/// Room for counters. The kernel writes all counters of the interface, whatever count it is given.
const ROOM: usize = 1 << 16;
/// Most counters to accept: their number may grow between two calls, for example with more channels.
const MOST: usize = ROOM / 4;

/// The counters of the network interface `interface` by name, as `ethtool -S` shows them.
pub fn counters(interface: &str) -> io::Result<Vec<(String, u64)>> {
    let count = count(interface)?;
    if count > MOST {
        return Err(io::Error::other(format!("{interface} has {count} counters; this version reads up to {MOST}")));
    }
    // struct ethtool_gstrings: command, set, count, then the strings.
    let mut names = vec![0; 3 + ROOM * NAME / 4];
    names[..3].copy_from_slice(&[GET_STRINGS, COUNTERS, count as u32]);
    ask(interface, &mut names)?;
    // struct ethtool_stats: command, count, then numbers of 64 bits.
    let mut values = vec![0; 2 + ROOM * 2];
    values[..2].copy_from_slice(&[GET_COUNTERS, count as u32]);
    ask(interface, &mut values)?;
    let told = count.min(names[2] as usize).min(values[1] as usize);
    let names = names[3..].chunks(NAME / 4).map(name);
    let values = values[2..].chunks(2).map(value);
    Ok(names.zip(values).take(told).collect())
}

/// The interface's number of counters.
fn count(interface: &str) -> io::Result<usize> {
    // struct ethtool_sset_info: command, reserved, 64-bit mask, then the count of each set in the mask.
    let mut info = [0; 5];
    info[0] = GET_SET_INFO;
    let mask = (1u64 << COUNTERS).to_ne_bytes();
    info[2] = u32::from_ne_bytes([mask[0], mask[1], mask[2], mask[3]]);
    info[3] = u32::from_ne_bytes([mask[4], mask[5], mask[6], mask[7]]);
    ask(interface, &mut info)?;
    // A set that does not exist is not in the mask of the reply.
    let known = info[2] != 0 || info[3] != 0;
    Ok(if known { info[4] as usize } else { 0 })
}

/// A name, up to its terminating zero.
fn name(words: &[u32]) -> String {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).take_while(|byte| *byte != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

fn value(words: &[u32]) -> u64 {
    let mut bytes = [0; 8];
    bytes.iter_mut().zip(words.iter().flat_map(|word| word.to_ne_bytes())).for_each(|(to, byte)| *to = byte);
    u64::from_ne_bytes(bytes)
}

/// Executes one call for `interface`. `words` is the structure of one of the three commands above, with room for the
/// interface's counters.
fn ask(interface: &str, words: &mut [u32]) -> io::Result<()> {
    // Any socket will do: the kernel passes the call to the interface. The name needs room for its terminating zero.
    let socket = UnixDatagram::unbound()?;
    let mut name = [0; libc::IFNAMSIZ];
    let fits = interface.len() < name.len() && interface.bytes().all(|byte| byte != 0);
    if !fits {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{interface:?} is no interface's name")));
    }
    name.iter_mut().zip(interface.bytes()).for_each(|(to, byte)| *to = byte as libc::c_char);
    let mut request =
        libc::ifreq { ifr_name: name, ifr_ifru: libc::__c_anonymous_ifr_ifru { ifru_data: words.as_mut_ptr().cast() } };
    // SAFETY: the request holds the interface's zero-terminated name, and the structure in `words`, borrowed
    // exclusively for the call. The kernel writes the structure, followed by one entry per counter: `counters` reserves
    // four times their number, and `count` room for the one set that it queries.
    let done = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL as _, &mut request) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_that_is_not_there_is_an_error_and_one_without_counters_has_none() {
        let missing = counters("nosuchinterface").expect_err("no such interface");
        assert_eq!(missing.raw_os_error(), Some(libc::ENODEV), "{missing}");
        for wrong in ["", "a-name-of-more-than-15-bytes", "a\0b"] {
            assert!(counters(wrong).is_err(), "{wrong:?}");
        }
        // The loopback interface has no driver.
        if let Ok(counters) = counters("lo") {
            assert!(counters.iter().all(|(name, _)| !name.is_empty()), "{counters:?}");
        }
    }

    #[test]
    fn names_and_values_are_cut_out_of_words() {
        let bytes = *b"rx_bytes\0xyz";
        let words: Vec<u32> = bytes.chunks(4).map(|word| u32::from_ne_bytes(word.try_into().unwrap())).collect();
        assert_eq!(name(&words), "rx_bytes");
        let halves = 0x0123_4567_89ab_cdef_u64.to_ne_bytes();
        let halves: Vec<u32> = halves.chunks(4).map(|half| u32::from_ne_bytes(half.try_into().unwrap())).collect();
        assert_eq!(value(&halves), 0x0123_4567_89ab_cdef);
    }
}
