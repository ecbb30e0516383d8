//! The `gpux` program.

fn main() {}
