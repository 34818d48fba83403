//! What the caller calls a key, and under which name its state is stored.

mod name;

use sha2::{Digest, Sha256};
use xxhash_rust::xxh3::xxh3_64;

use crate::algorithm::letter;
use crate::error::{Error, ErrorKind};
use crate::limit::{Limit, MAX_LIMITS};

pub(crate) use self::name::{KeyName, Name, Names};

include!(concat!(env!("OUT_DIR"), "/tags.rs"));

/// The longest key that a caller may use, in bytes.
const LONGEST_KEY: usize = 65_536;
/// A longer key is stored as its hash.
const LONGEST_STORED: usize = 64;
/// The longest name of a limiter, in bytes.
const LONGEST_NAME: usize = 255;
const LONGEST_PREFIX: usize = 64;
/// The format of the stored state; another format means another number.
const FORMAT: u8 = b'1';
/// How many partitions there may be at most.
pub(crate) const MOST_PARTITIONS: usize = TAGS.len();
/// The slots of all partitions, however many there are, lie on multiples of this.
pub(crate) const SLOT_SPACING: u16 = (SLOTS / MOST_PARTITIONS) as u16;
/// Hash slots of a cluster.
const SLOTS: usize = 16_384;

/// Refuses keys that are empty or too long.
pub(crate) fn check_key(key: &[u8]) -> Result<(), Error> {
    if key.is_empty() || key.len() > LONGEST_KEY {
        let message = format!("a key has 1 to {LONGEST_KEY} bytes, not {}; hash longer ones", key.len());
        return Err(Error::new(ErrorKind::InvalidKey, message));
    }
    Ok(())
}

/// Refuses names of limiters that are empty or too long.
pub(crate) fn check_name(name: &str) -> Result<(), Error> {
    if name.is_empty() || name.len() > LONGEST_NAME {
        let message = format!("the name of a limiter has 1 to {LONGEST_NAME} bytes, not {}", name.len());
        return Err(Error::new(ErrorKind::InvalidOptions, message));
    }
    Ok(())
}

/// Refuses prefixes that are empty or too long, and braces, which would decide over the slot.
pub(crate) fn check_prefix(prefix: &str) -> Result<(), Error> {
    if prefix.is_empty() || prefix.len() > LONGEST_PREFIX || prefix.contains(['{', '}']) {
        let message = format!("a prefix has 1 to {LONGEST_PREFIX} bytes and no braces");
        return Err(Error::new(ErrorKind::InvalidOptions, message));
    }
    Ok(())
}

/// The stable hash of a key.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KeyHash(u64);

impl KeyHash {
    pub(crate) fn of(key: &[u8]) -> Self {
        Self(xxh3_64(key))
    }
}

/// How many partitions the keys of a store are divided into: a power of two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Partitions(u16);

impl Partitions {
    /// # Errors
    /// [`ErrorKind::InvalidOptions`] for a number that is no power of two, or too large.
    pub(crate) fn new(count: u16) -> Result<Self, Error> {
        if !count.is_power_of_two() || usize::from(count) > MOST_PARTITIONS {
            let message = format!("partitions must be a power of two up to {MOST_PARTITIONS}, not {count}");
            return Err(Error::new(ErrorKind::InvalidOptions, message));
        }
        Ok(Self(count))
    }

    pub(crate) const fn count(self) -> u16 {
        self.0
    }

    /// The partition that a key belongs to, by the key alone: all limits of one key live in one slot.
    pub(crate) fn of(self, hash: KeyHash) -> usize {
        hash.0 as usize % usize::from(self.0)
    }

    /// The hash slot in which all keys of a partition live.
    pub(crate) const fn slot(self, partition: usize) -> u16 {
        (partition * (SLOTS / self.0 as usize)) as u16
    }

    /// The hash tag of the partition that a key belongs to.
    fn tag(self, hash: KeyHash) -> &'static str {
        TAGS[self.of(hash) * (MOST_PARTITIONS / usize::from(self.0))]
    }
}

impl Default for Partitions {
    fn default() -> Self {
        Self(64)
    }
}

/// The name under which the state of one Limit of one key is stored:
/// `PREFIX:{TAG}:FORMAT ALGORITHM:PERIOD:LENGTH:LIMITER:KEY`, without the blank.
/// The period is in milliseconds, LENGTH is that of the limiter's name. KEY is `=` and the key itself, or, where that is
/// longer than 64 bytes, `#` and its SHA-256 in hexadecimal digits. Whatever the bytes, no two tuples share a name.
fn push_stored_key(stored: &mut Vec<u8>, prefix: &str, tag: &str, limiter: &str, limit: &Limit, key: &[u8]) {
    stored.extend_from_slice(prefix.as_bytes());
    stored.extend_from_slice(b":{");
    stored.extend_from_slice(tag.as_bytes());
    stored.extend_from_slice(b"}:");
    push_suffix(stored, limiter, limit, key);
}

/// The names under which the states of all Limits of one key are stored.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct StoredKeys {
    bytes: Vec<u8>,
    /// Where each name ends.
    ends: [u16; MAX_LIMITS],
}

impl StoredKeys {
    pub(crate) fn new(
        prefix: &str,
        partitions: Partitions,
        hash: KeyHash,
        limiter: &str,
        limits: &[Limit],
        key: &[u8],
    ) -> Self {
        let longest = prefix.len() + limiter.len() + key.len().min(LONGEST_STORED) + 40;
        let mut stored = Self { bytes: Vec::with_capacity(limits.len() * longest), ends: [0; MAX_LIMITS] };
        let tag = partitions.tag(hash);
        for (end, limit) in stored.ends.iter_mut().zip(limits) {
            push_stored_key(&mut stored.bytes, prefix, tag, limiter, limit, key);
            // Four names of less than 500 bytes each.
            *end = stored.bytes.len() as u16;
        }
        stored
    }

    /// The name for the Limit of an index.
    pub(crate) fn get(&self, index: usize) -> &[u8] {
        let start = if index == 0 { 0 } else { self.ends[index - 1] };
        &self.bytes[start.into()..self.ends[index].into()]
    }
}

/// The part of a stored key that tells states of one store apart.
pub(crate) fn push_suffix(stored: &mut Vec<u8>, limiter: &str, limit: &Limit, key: &[u8]) {
    stored.push(FORMAT);
    stored.extend_from_slice(letter(limit.algorithm()).as_bytes());
    stored.push(b':');
    push_number(stored, limit.period_micros() / 1000);
    stored.push(b':');
    push_number(stored, limiter.len() as u64);
    stored.push(b':');
    stored.extend_from_slice(limiter.as_bytes());
    stored.push(b':');
    if key.len() <= LONGEST_STORED {
        stored.push(b'=');
        stored.extend_from_slice(key);
    } else {
        stored.push(b'#');
        for byte in Sha256::digest(key) {
            for digit in [byte >> 4, byte & 15] {
                stored.push(b"0123456789abcdef"[usize::from(digit)]);
            }
        }
    }
}

/// A key of grifo's own, beside those of the callers, in slot 0: the first partition's, however many there are.
pub(crate) fn helper_key(prefix: &str, name: &str) -> String {
    format!("{prefix}:{{{}}}:{}helper:{name}", TAGS[0], char::from(FORMAT))
}

fn push_number(stored: &mut Vec<u8>, number: u64) {
    if number >= 10 {
        push_number(stored, number / 10);
    }
    stored.push(b'0' + (number % 10) as u8);
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::time::Duration;

    use super::*;

    fn name(limiter: &str, key: &[u8]) -> Vec<u8> {
        let limit = Limit::token_bucket(1, Duration::from_secs(1)).unwrap();
        StoredKeys::new("grifo", Partitions::default(), KeyHash::of(key), limiter, &[limit], key).get(0).to_vec()
    }

    #[test]
    fn the_format_of_stored_keys_is_fixed() {
        assert_eq!(name("api", b"user:42"), b"grifo:{c0h}:1t:1000:3:api:=user:42".to_vec());
    }

    /// The slot of a key without braces, bit by bit as in the specification of Redis Cluster.
    fn slot(tag: &[u8]) -> usize {
        let mut crc = 0_u32;
        for byte in tag {
            for bit in (0..8).rev() {
                let carry = (crc >> 15 & 1) != u32::from(*byte >> bit & 1);
                crc = (crc << 1 & 0xffff) ^ if carry { 0x1021 } else { 0 };
            }
        }
        crc as usize % 16_384
    }

    #[test]
    fn tags_are_evenly_spaced_over_the_slots() {
        assert_eq!(slot(b"123456789"), 0x31c3);
        for (index, tag) in TAGS.iter().enumerate() {
            assert_eq!(slot(tag.as_bytes()), index * 4, "{tag}");
        }
    }

    /// The last slot of each master, as `redis-cli --cluster create` shares them out.
    fn last_slots(masters: usize) -> Vec<usize> {
        let share = 16_384.0 / masters as f64;
        let mut last: Vec<_> = (1..=masters).map(|n| (n as f64 * share - 1.0).round() as usize).collect();
        last[masters - 1] = 16_383;
        last
    }

    #[test]
    fn cl_04_each_master_has_its_share_of_the_partitions() {
        for masters in [3, 5, 16] {
            let last = last_slots(masters);
            let counts_that_suffice = (6..=12).map(|n| 1 << n).filter(|partitions| *partitions >= 16 * masters);
            for partitions in counts_that_suffice {
                let mut owned = vec![0_usize; masters];
                for tag in TAGS.iter().step_by(TAGS.len() / partitions) {
                    let slot = slot(tag.as_bytes());
                    owned[last.iter().filter(|last| **last < slot).count()] += 1;
                }
                let even = partitions as f64 / masters as f64;
                let is_fair = |count: &usize| (*count as f64 / even - 1.0).abs() <= 0.05;
                assert!(owned.iter().all(is_fair), "{partitions} partitions on {masters} masters: {owned:?}");
            }
        }
    }

    #[test]
    fn se_01_no_two_tuples_share_a_name() {
        let separators = [":", "|", "/", "{", "}", "{}", "\0", "\n", "=", "#"];
        let mut parts: Vec<String> = separators
            .iter()
            .flat_map(|s| [format!("a{s}"), format!("{s}a"), format!("a{s}a"), (*s).to_owned()])
            .collect();
        parts.extend(["a", "aa", "1", "21", "2", "11", "x", "y:z", "x:y", "z"].map(str::to_owned));
        let mut names = HashSet::new();
        for limiter in &parts {
            for key in &parts {
                assert!(names.insert(name(limiter, key.as_bytes())), "{limiter:?} {key:?}");
            }
        }
        let long = vec![b'k'; 65];
        let hash = name("api", &long);
        assert!(names.insert(hash.clone()));
        let imitated = &hash[hash.len() - 65..];
        assert_ne!(name("api", imitated), hash);
    }

    #[test]
    fn keys_spread_over_the_partitions_whatever_their_braces() {
        let partitions = Partitions::default();
        let tags: HashSet<_> =
            (0..1000).map(|n| partitions.tag(KeyHash::of(format!("u{{same}}{n}").as_bytes()))).collect();
        assert_eq!(tags.len(), 64);
    }

    #[test]
    fn se_03_a_stored_key_is_never_long() {
        let longest = name(&"n".repeat(255), &[0xff; 65_536]);
        assert!(longest.len() < 400, "{}", longest.len());
        assert!(check_key(&[0; 65_537]).is_err() && check_key(b"").is_err() && check_key(&[0; 65_536]).is_ok());
    }
}
