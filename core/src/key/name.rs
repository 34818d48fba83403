//! What tells states apart: 128 bits for each, so that a look-up compares no bytes and a key takes the same room however long.

use std::fmt;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};

use siphasher::sip128::{Hasher128, SipHasher13};

use crate::algorithm::letter;
use crate::limit::Limit;

/// Names keys by a keyed hash. Its secret never leaves the process, so that nobody can find two keys of one name; that any two
/// of a billion share one by chance has a probability of 10^-21.
pub(crate) struct Names(SipHasher13);

/// Without the secret.
impl fmt::Debug for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Names").finish_non_exhaustive()
    }
}

impl Names {
    pub(crate) fn new() -> Self {
        let random = RandomState::new();
        Self(SipHasher13::new_with_keys(random.hash_one(0), random.hash_one(1)))
    }

    /// What all Limits of a key have in common.
    pub(crate) fn of(&self, limiter: &str, key: &[u8]) -> KeyName {
        let mut hasher = self.0;
        hasher.write(limiter.as_bytes());
        hasher.write(key);
        // Tells ("a", "bc") from ("ab", "c").
        hasher.write_u8(limiter.len() as u8);
        let hash = hasher.finish128();
        KeyName { high: hash.h1, low: hash.h2 }
    }
}

/// The name of a key of one limiter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KeyName {
    high: u64,
    low: u64,
}

impl KeyName {
    /// Bits that tell nothing of the [hash](Self::hash).
    pub(crate) const fn shard(self) -> usize {
        self.high as usize
    }

    pub(crate) const fn hash(self) -> u64 {
        self.low
    }

    /// The name of the state of one Limit. Those of one key differ for sure, all others as far as their hashes do.
    pub(crate) fn of_limit(self, limit: &Limit) -> Name {
        let letter = letter(limit.algorithm()).as_bytes()[0];
        Name { high: self.high, low: self.low ^ (limit.period_micros() << 8 | u64::from(letter)) }
    }
}

impl Hash for KeyName {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        hasher.write_u64(self.low);
    }
}

/// What the state of one Limit of one key is stored under.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Name {
    high: u64,
    low: u64,
}

impl Name {
    pub(crate) const fn hash(&self) -> u64 {
        self.low
    }
}
