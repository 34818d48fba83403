//! The command line of grifo.

fn main() {}
