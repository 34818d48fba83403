//! The grain of time.

/// The grain of a Limit's time, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u16)]
pub(crate) enum Tick {
    Micro = 1,
    TenMicros = 10,
    HundredMicros = 100,
    Milli = 1000,
}

impl Tick {
    /// Finest first.
    pub(super) const ALL: [Self; 4] = [Self::Micro, Self::TenMicros, Self::HundredMicros, Self::Milli];

    pub(crate) const fn micros(self) -> u64 {
        self as u64
    }

    /// Whole ticks in so many microseconds. By divisors that the compiler knows, since this is in the way of every call.
    pub(crate) const fn whole(self, micros: u64) -> u64 {
        match self {
            Self::Micro => micros,
            Self::TenMicros => micros / 10,
            Self::HundredMicros => micros / 100,
            Self::Milli => micros / 1000,
        }
    }
}
